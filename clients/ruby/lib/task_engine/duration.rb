# frozen_string_literal: true

require "time"

module TaskEngine
  # Durations and times, as callers write them and as they are sent.
  module Duration
    UNITS = {
      "ms" => 1/1000r, "msec" => 1/1000r, "millisecond" => 1/1000r, "milliseconds" => 1/1000r,
      "s" => 1, "sec" => 1, "secs" => 1, "second" => 1, "seconds" => 1,
      "m" => 60, "min" => 60, "mins" => 60, "minute" => 60, "minutes" => 60,
      "h" => 3600, "hr" => 3600, "hour" => 3600, "hours" => 3600,
      "d" => 86_400, "day" => 86_400, "days" => 86_400,
      "w" => 604_800, "week" => 604_800, "weeks" => 604_800
    }.freeze
    PART = /(\d+(?:\.\d+)?)\s*([a-z]+)/
    TEXT = /\A\s*#{PART.source}(?:[\s,]*#{PART.source})*\s*\z/
    MAXIMUM = 100 * 366 * 86_400

    module_function

    # A number of seconds, from a number, a text like "1h 30m", or what ActiveSupport makes of
    # `10.minutes`.
    def seconds(value, option)
      number = number(value)
      unless number && number >= 0 && number <= MAXIMUM
        raise InvalidArgument, "#{option} is #{value.inspect}; write a duration like \"30s\", \"10m\" or \"3d\", " \
                               "or a number of seconds, up to 100 years"
      end
      number.to_i == number ? number.to_i : number.to_f.round(3)
    end

    # The same as a text that the engine, the HTTP API and PostgreSQL understand.
    def text(value, option)
      "#{seconds(value, option)}s"
    end

    # A time with its offset.
    def time(value, option)
      time = value.respond_to?(:to_time) && !date?(value) && !value.is_a?(String) ? value.to_time : parsed(value)
      return time.getutc.strftime("%Y-%m-%dT%H:%M:%S.%6NZ") if time

      raise InvalidArgument, "#{option} is #{value.inspect}; write a Time, or a text with an offset like " \
                             "\"2027-01-31T08:00:00Z\""
    end

    def number(value)
      case value
      when Integer then value
      when Float, Rational then value if value.to_f.finite?
      when String then TEXT.match?(value) ? sum(value) : nil
      else value.to_f if defined?(ActiveSupport::Duration) && value.is_a?(ActiveSupport::Duration)
      end
    end

    def sum(text)
      text.scan(PART).sum { |number, unit| Rational(number) * (UNITS[unit] || (return nil)) }
    end

    # A day without a time of day.
    def date?(value)
      defined?(Date) && value.is_a?(Date) && !value.is_a?(DateTime)
    end

    def parsed(value)
      Time.iso8601(value) if value.is_a?(String)
    rescue ArgumentError
      nil
    end
    private_class_method :number, :sum, :date?, :parsed
  end
end
