# frozen_string_literal: true

module TaskEngine
  # A child task that has ended.
  class Child
    attr_reader :task_id, :status, :error

    def initialize(fields)
      @task_id, @status, @result, @error = fields.values_at("task_id", "status", "result", "error")
    end

    def succeeded?
      @status == "stopped"
    end

    # Its result; raises ChildFailed if it did not succeed.
    def result
      succeeded? ? @result : raise(ChildFailed, self)
    end

    def error_message
      @error.is_a?(Hash) ? @error["message"].to_s : @error.to_s
    end
  end

  # The durable calls of a Context. An attempt runs the code from its beginning, and gets what
  # earlier attempts have recorded.
  module Durable
    # Runs the block once and records its result. Later attempts get the recorded result, with
    # texts as keys; the first one gets the same.
    def step(name, &code)
      code or Checks.invalid("step #{name} has no code; pass a block")
      answer = request(step: Checks.name_of(name, "the name of a step"))
      return answer["recorded"] if answer.key?("recorded")

      result = inside_step(name, &code)
      request({ step: answer["step"] }, %("result":#{step_result(name, result)}))["recorded"]
    end

    # Sleeps for a time, or `until:` a time. Uses no worker meanwhile.
    #
    #   ctx.sleep("cooling off", "3d")
    def sleep(name, time = nil, **options)
      options = Checks.options(options, %i[until], "sleep")
      name = Checks.name_of(name, "the name of a sleep")
      time.nil? == options.key?(:until) or Checks.invalid("sleep #{name} needs a time like \"3d\", or until: a Time")
      limit = time.nil? ? { until: Duration.time(options[:until], "until") } : { for: Duration.seconds(time, "time") }
      request(sleep: name, **limit)
      nil
    end

    # Waits for a signal to the task, and returns its payload. Raises WaitTimedOut.
    def wait_for(name, timeout:)
      name = Checks.name_of(name, "the name of a signal")
      answer = request(wait: name, timeout: Duration.seconds(timeout, "timeout"))
      raise WaitTimedOut, name if answer["timed_out"]

      answer["signal"]
    end

    # Creates a child task, waits for its end, and returns its result. Raises ChildFailed.
    # Options: queue, priority, and the name of the call (that of the class).
    def call(task_class, parameters = {}, **options)
      options = Checks.options(options, %i[name queue priority], "a call (put parameters into braces: { … })")
      name = options.delete(:name)
      call_all([{ class: task_class, parameters:, **options }], name:).first.result
    end

    # The same for many children, which run side by side. Returns a Child for each, also for those
    # that failed. `tasks` are Hashes like { class: "resize", parameters: { width: 80 } }.
    def call_all(tasks, name: nil)
      children = tasks.map { |task| child(task) }
      return [] if children.empty?

      answer = request(call: Checks.name_of(name || children.first[:class], "the name of a call"), tasks: children)
      answer["results"].map { |result| Child.new(result) }
    end

    # A line of the engine about the task: the answer to the oldest request that waits, or its end.
    def receive(message)
      return interrupt(AttemptEnded.new(message["message"])) if message.key?("ended")

      @mutex.synchronize do
        kind, reply = requests.first
        reply.push(message) && requests.shift if kind && message.key?(kind)
      end
    end

    # The engine answers no more requests.
    def close_requests(interruption)
      @mutex.synchronize do
        @requests_end = interruption
        end_requests(interruption)
      end
    end

    private

    # Requests that wait for an answer. The engine answers them in their order.
    def requests
      @requests ||= []
    end

    def request(fields, more = nil)
      forbid_inside_step(fields)
      reply = Queue.new
      while_open do
        raise @requests_end if @requests_end

        requests << [fields.keys.first.to_s, reply]
        more ? push_raw(fields, more) : push(fields)
      end
      answer = reply.pop
      raise answer if answer.is_a?(Interruption)

      answer
    end

    def end_requests(interruption)
      requests.each { |_, reply| reply.push(interruption) }
      requests.clear
    end

    # A result that is JSON already.
    def push_raw(fields, more)
      @outbox.push("#{pending_log}{\"id\":#{id_json},#{JSON.generate(fields)[1..-2]},#{more}}\n")
    end

    def forbid_inside_step(fields)
      step = Thread.current[:task_engine_step] or return

      raise StepInsideStep, "a #{fields.keys.first} inside of step #{step}; do it before or after the step"
    end

    def inside_step(name, &code)
      Thread.current[:task_engine_step] = name.to_s
      code.call
    ensure
      Thread.current[:task_engine_step] = nil
    end

    def step_result(name, result)
      Json.generate(result, "the result of step #{name}")
    end

    def child(task)
      Checks.hash_of(task, "a child", "{ class: \"resize\", parameters: { width: 80 } }")
      Checks.options(task, %i[class parameters queue priority], "a child")
      fields = NewTask.from(task).fields
      fields.slice(:class, :parameters, :queue, :priority)
    end
  end
end
