# frozen_string_literal: true

module TaskEngine
  # Checks of arguments, whose messages say what to write instead.
  module Checks
    NAME_BYTES = 200
    INT32 = (-(2**31)..((2**31) - 1))
    TASK_IDS = (1..((2**63) - 1))

    module_function

    def invalid(message)
      raise InvalidArgument, message
    end

    # Hash with symbols as keys, and only those that are known.
    def options(given, known, what)
      given.to_h do |name, value|
        name = name.to_sym
        known.include?(name) or invalid("#{what} has no option #{name}; #{hint(name, known)}")
        [name, value]
      end
    end

    # "did you mean timeout?", or all that are known.
    def hint(name, known)
      near = DidYouMean::SpellChecker.new(dictionary: known).correct(name).first if defined?(DidYouMean)
      return "did you mean #{near}?" if near

      known.empty? ? "there is none" : "known: #{known.join(", ")}"
    end

    # The name of a class, queue, limit, step or signal.
    def name_of(value, what, bytes: NAME_BYTES)
      value = value.to_s if value.is_a?(Symbol)
      return value if value.is_a?(String) && value.bytesize.between?(1, bytes) && !value.match?(/[[:cntrl:]]/)

      invalid("#{what} is #{value.inspect}; write a text of 1 to #{bytes} bytes without control characters")
    end

    def whole(value, what, range)
      return value if value.is_a?(Integer) && range.cover?(value)

      invalid("#{what} is #{value.inspect}; write a whole number from #{range.min} to #{range.max}")
    end

    def task_id(value, what = "the task")
      return value if value.is_a?(Integer) && TASK_IDS.cover?(value)

      invalid("#{what} is #{value.inspect}; write the id of a task, a number")
    end

    def one_of(value, what, known)
      known.include?(value.to_s) ? value.to_s : invalid("#{what} is #{value.inspect}; write #{known.join(", ")}")
    end

    def hash_of(value, what, example)
      value.is_a?(Hash) ? value : invalid("#{what} is #{value.inspect[0, 100]}; write a Hash like #{example}")
    end
  end
end
