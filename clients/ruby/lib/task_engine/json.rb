# frozen_string_literal: true

require "json"

module TaskEngine
  # JSON that is sent. Ruby's generator writes any object as a text ("#<Object:0x…>"); here that is
  # an error.
  module Json
    # What the engine stores.
    DEPTH_MAXIMUM = 64

    module_function

    # `what` names the value in messages, like "the result".
    def generate(value, what)
      return "null" if value.nil?

      check(value, what, 0)
      JSON.generate(value, max_nesting: 0)
    rescue JSON::GeneratorError, EncodingError => error
      raise NotJson, "#{what} cannot be written as JSON: #{error.message[0, 200]}"
    end

    # As the engine would return it: texts as keys, and no symbols.
    def round_trip(value, what)
      JSON.parse(generate(value, what), max_nesting: 0)
    end

    # A text of the user, or of an exception, that may have any bytes and any length.
    def text(value, bytes)
      text = value.to_s
      text = utf8(text).scrub
      text.bytesize > bytes ? "#{text.byteslice(0, bytes).scrub("")}…" : text
    end

    def check(value, what, depth)
      case value
      when nil, true, false, Integer, String, Symbol then nil
      when Float then value.finite? or raise NotJson, "#{what} contains #{value}, which JSON cannot express"
      when Array
        deeper(what, depth)
        value.each { |item| check(item, what, depth + 1) }
      when Hash
        deeper(what, depth)
        value.each { |key, item| key(key, what) && check(item, what, depth + 1) }
      else
        raise NotJson, "#{what} contains a #{value.class}, which is not JSON; " \
                       "use texts, numbers, true, false, nil, lists and Hashes"
      end
    end

    def deeper(what, depth)
      raise NotJson, "#{what} is nested deeper than #{DEPTH_MAXIMUM} levels" if depth >= DEPTH_MAXIMUM
    end

    def key(key, what)
      return true if key.is_a?(String) || key.is_a?(Symbol)

      raise NotJson, "#{what} contains a Hash with the key #{key.inspect}; use texts or symbols as keys"
    end

    def utf8(text)
      case text.encoding
      when Encoding::UTF_8 then text
      # What Ruby reads in the locale C, or from a socket.
      when Encoding::US_ASCII, Encoding::BINARY then text.dup.force_encoding(Encoding::UTF_8)
      else text.encode(Encoding::UTF_8, invalid: :replace, undef: :replace)
      end
    end
    private_class_method :check, :deeper, :key, :utf8
  end
end
