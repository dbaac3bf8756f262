# frozen_string_literal: true

module TaskEngine
  # What the code of a task gets: its attempt, and the way to the engine. Threads of the task may
  # share it.
  class Context
    include Durable

    # The engine keeps this much of a line of the log, of a progress message.
    LOG_BYTES = 8 * 1024
    PROGRESS_BYTES = 1024
    # A line for the engine is shorter than 64 KiB.
    LOG_LINE_BYTES = 48 * 1024

    attr_reader :id, :task_id, :attempt, :retry_number, :task_class, :correlation_id, :parameters,
                # How the tasks that it depends on have ended, by name, as the engine sends them:
                # { "extract" => { "id" => 1, "status" => "stopped", "result" => 3 } }
                :dependencies

    # `line` is the task as the engine sends it; `outbox` takes lines, and contexts with a log.
    def initialize(line, outbox)
      @id, @task_id, @attempt, @retry_number, @task_class, @correlation_id =
        line.values_at("id", "task_id", "attempt", "retry_number", "class", "correlation_id")
      @parameters = line["parameters"]
      @dependencies = line["dependencies"] || {}
      @outbox = outbox
      @mutex = Mutex.new
      @logs = []
      @interruption = nil
      @requests_end = nil
      @is_answered = false
    end

    # The result of a task that this one depends on, by its name or id.
    def result_of(name)
      key = name.to_s
      found = @dependencies[key] || @dependencies.each_value.find { |one| one["id"].to_s == key }
      found or raise ResultMissing, "the task does not depend on #{name.inspect}; " \
                                    "#{Checks.hint(key, @dependencies.keys)}"
      return found["result"] if found.key?("result")

      raise ResultMissing, "task #{found["id"]} (#{key}) has no result: #{found["status"]}" \
                           "#{": #{found["error"]}" if found["error"]}"
    end

    # Writes lines to the log of the task.
    def log(*texts)
      lines = texts.flat_map { |text| Json.text(text, 1 << 30).lines(chomp: true) }
      lines = [""] if lines.empty?
      while_open do
        # The writer joins what is logged until it comes to it.
        @outbox.push(self) if @logs.empty?
        @logs.concat(lines)
      end
      nil
    end

    # Reports progress in percent.
    def progress(percent, message = nil)
      (percent.is_a?(Numeric) && percent.to_f.finite?) or
        Checks.invalid("the progress is #{percent.inspect}; write a number from 0 to 100")
      percent = percent.to_f unless percent.is_a?(Integer)
      fields = { progress: percent }
      fields[:message] = Json.text(message, PROGRESS_BYTES) unless message.nil?
      while_open { push(fields) }
      nil
    end

    # Whether the task was cancelled, its time is over, or the engine is gone.
    def cancelled?
      !@interruption.nil?
    end

    # Raises Cancelled if it is.
    def check_cancelled
      interruption = @interruption
      raise interruption.class, interruption.message if interruption
    end

    # Waits until it is cancelled, at most for this time. Returns whether it is.
    def wait_for_cancel(timeout = nil)
      seconds = timeout && Duration.seconds(timeout, "timeout")
      deadline = seconds && (now + seconds)
      @mutex.synchronize do
        @interrupted ||= ConditionVariable.new
        until @interruption
          left = deadline && (deadline - now)
          return false if left && left <= 0

          @interrupted.wait(@mutex, left)
        end
      end
      true
    end

    # Ends what the task waits for, and all that it asks for later, with this Interruption.
    def interrupt(interruption)
      @mutex.synchronize do
        return if @interruption

        @interruption = interruption
        @interrupted&.broadcast
        end_requests(interruption)
      end
    end

    # Sends the answer, once, unless the engine has ended the attempt. `text` is its JSON without
    # the id and without braces.
    def answer(text)
      @mutex.synchronize do
        return if @is_answered || @interruption.is_a?(AttemptEnded)

        @is_answered = true
        @outbox.push("#{pending_log}{\"id\":#{id_json},#{text}}\n")
      end
    end

    # The lines that the log is waiting with, for the writer.
    def take_log
      @mutex.synchronize { pending_log }
    end

    private

    def while_open
      @mutex.synchronize do
        check_cancelled
        raise AttemptEnded, "the task has been answered" if @is_answered

        yield
      end
    end

    def push(fields)
      @outbox.push("#{pending_log}{\"id\":#{id_json},#{JSON.generate(fields, max_nesting: 0)[1..]}\n")
    end

    def pending_log
      return if @logs.empty?

      batches = [+""]
      @logs.each do |line|
        json = JSON.generate(Json.text(line, LOG_BYTES))
        batches << +"" if batches.last.bytesize + json.bytesize > LOG_LINE_BYTES
        batches.last << "," unless batches.last.empty?
        batches.last << json
      end
      @logs = []
      batches.map { |batch| "{\"id\":#{id_json},\"log\":[#{batch}]}\n" }.join
    end

    def id_json
      @id_json ||= JSON.generate(@id)
    end

    def now
      Process.clock_gettime(Process::CLOCK_MONOTONIC)
    end
  end
end
