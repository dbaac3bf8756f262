# frozen_string_literal: true

module TaskEngine
  # The base of all errors of this library.
  class Error < StandardError
    # What the server calls the error: the SQLSTATE, such as "23514", or the HTTP status, such as
    # 422. nil for errors that no server has reported.
    attr_reader :code

    def initialize(message = nil, code: nil)
      super(message)
      @code = code
    end
  end

  # Found before anything was sent.
  class InvalidArgument < Error; end

  # The database refused a statement, or could not be reached. `cause` is the driver's error.
  class DatabaseError < Error; end

  # The HTTP API refused a request, or could not be reached.
  class HttpError < Error
    # The JSON pointer of the invalid part of the request, if there is one.
    attr_reader :pointer
    # Why a signal was refused.
    attr_reader :outcome

    def initialize(message = nil, code: nil, pointer: nil, outcome: nil)
      super(message, code:)
      @pointer = pointer
      @outcome = outcome
    end
  end

  # Mark the class of an exception with this module, and a task that raises it is not retried.
  module NoRetryException; end

  # Fails the task without a retry.
  class NoRetry < Error
    include NoRetryException
  end

  # A result, or another value for the engine, that JSON cannot express.
  class NotJson < NoRetry; end

  # The parameters of a task do not fit its code.
  class InvalidParameters < NoRetry; end

  # The base of those that take a time: raise RetryAfter.new("30s", "the bank is closed").
  class Postponed < Error
    # In seconds.
    attr_reader :time

    def initialize(time, message = nil)
      super(message)
      @time = Duration.seconds(time, "time")
    end
  end

  # Fails the attempt, and retries after this time instead of the time of the retry rule.
  class RetryAfter < Postponed; end

  # Runs the task again after this time. Uses no retry.
  class Snooze < Postponed; end

  # As Snooze, and the keys of the limits of the task are closed for this time.
  class RateLimited < Postponed; end

  # The signal did not come in time.
  class WaitTimedOut < Error
    attr_reader :signal

    def initialize(signal)
      super("signal #{signal} did not come in time")
      @signal = signal
    end
  end

  # A child task did not succeed.
  class ChildFailed < Error
    attr_reader :child

    def initialize(child)
      super("task #{child.task_id} #{child.status}: #{child.error_message}")
      @child = child
    end
  end

  # A task reads the result of a task that did not succeed, or on which it does not depend.
  class ResultMissing < Error; end

  # A durable call inside of a step.
  class StepInsideStep < NoRetry; end

  # The engine does not accept this worker.
  class Refused < Error; end

  # The base of what ends the code of a task from outside. It is no StandardError: `rescue => error`
  # does not catch it.
  class Interruption < Exception; end # rubocop:disable Lint/InheritException

  # The attempt has ended: the task sleeps or waits, or the engine has recorded a failure.
  class AttemptEnded < Interruption; end

  # The task was cancelled, or its time is over.
  class Cancelled < Interruption; end
end
