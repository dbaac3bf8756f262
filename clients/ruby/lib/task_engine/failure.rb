# frozen_string_literal: true

module TaskEngine
  # The answer of a task that raised, as JSON without the id and the braces.
  module Failure
    MESSAGE_BYTES = 8 * 1024
    LINE_BYTES = 500
    LINES = 60

    module_function

    def answer(error)
      case error
      when Snooze then postponed(:snooze, error)
      when RateLimited then postponed(:rate_limited, error)
      when RetryAfter then failed(error, retry: error.time)
      when NoRetryException then failed(error, retry: false)
      else failed(error)
      end
    end

    def named(exception, message)
      inner(error: { exception:, message: })
    end

    def failed(error, **fields)
      inner(error: { exception: error.class.name || error.class.inspect,
                     message: Json.text(text_of(error), MESSAGE_BYTES), backtrace: backtrace(error) }, **fields)
    end

    def postponed(kind, error)
      fields = { kind => error.time }
      fields[:message] = Json.text(error.message, MESSAGE_BYTES) unless error.message == error.class.name
      inner(fields)
    end

    # The message of an exception is code of the user, too.
    def text_of(error)
      error.message
    rescue StandardError => error
      "its message raised #{error.class}"
    end

    # That of the error, and those of its causes.
    def backtrace(error)
      lines = (error.backtrace || []).first(LINES)
      seen = [error]
      while (error = error.cause) && !seen.include?(error) && seen.length < 5
        seen << error
        lines << "caused by #{error.class}: #{text_of(error)}"
        lines.concat((error.backtrace || []).first(10))
      end
      lines.map { |line| Json.text(line, LINE_BYTES) }
    end

    def inner(fields)
      JSON.generate(fields)[1..-2]
    end
    private_class_method :failed, :postponed, :text_of, :backtrace, :inner
  end
end
