# frozen_string_literal: true

require_relative "../task_engine"

module TaskEngine
  # Runs the code of a task without an engine.
  #
  #   require "task_engine/testing"
  #
  #   ctx = TaskEngine::Testing::Context.new(signals: { "approved" => { "by" => "ada" } })
  #   assert_equal "shipped", TaskEngine::Testing.run(Order, { item: "book" }, ctx)
  #   assert_equal %w[reserve ship], ctx.steps.keys
  module Testing
    # Runs a task class, by its name or Ruby class, and returns its result as the engine would
    # store it. What the task raises is raised here, too.
    def self.run(task_class, parameters = {}, context = Context.new)
      definition = Registry.definitions([task_class]).values.first
      parameters = Json.round_trip(parameters, "the parameters")
      Json.round_trip(definition.call(context.start(definition.name, parameters), parameters), "the result")
    end

    # A context that plays the engine: it records what the task does, and answers from its
    # arguments.
    #
    #   recorded      results of steps that earlier attempts have recorded, by name
    #   signals       payloads of signals, by name; a wait for another one times out at once
    #   children      results of child tasks by class: a value, an exception for a child that
    #                 fails, or a callable that gets the parameters
    #   dependencies  results of the tasks that it depends on, by name
    class Context < TaskEngine::Context
      # What the task has logged; its steps with their results; its sleeps, by name; its reported
      # progress, as [percent, message]; and the child tasks that it has called, as Hashes.
      attr_reader :logs, :steps, :sleeps, :progresses, :calls

      def initialize(recorded: {}, signals: {}, children: {}, dependencies: {}, task_id: 1, attempt: 1,
                     retry_number: 0, correlation_id: nil)
        @recorded, @signals, @children = [recorded, signals, children].map { |hash| texts(hash) }
        @logs, @progresses, @calls = [], [], []
        @steps, @sleeps, @names = {}, {}, Hash.new(0)
        super({ "id" => "#{task_id}.#{attempt}", "task_id" => task_id, "attempt" => attempt,
                "retry_number" => retry_number, "correlation_id" => correlation_id || task_id.to_s,
                "parameters" => {}, "dependencies" => ended(dependencies) }, self)
      end

      # Cancels the task, also from another thread or from a step.
      def cancel
        interrupt(Cancelled.new("the task was cancelled, or its time is over"))
      end

      def start(task_class, parameters)
        @task_class, @parameters = task_class, parameters
        self
      end

      private

      def log(*texts)
        while_open { @logs.concat(texts.flat_map { |text| text.to_s.lines(chomp: true) }) }
        nil
      end
      public :log

      def push(fields)
        @progresses << fields.values_at(:progress, :message) if fields.key?(:progress)
      end

      # The engine's side of a durable call.
      def request(fields, more = nil)
        forbid_inside_step(fields)
        while_open { nil }
        kind = fields.keys.first
        name = more ? fields[kind] : numbered(fields[kind])
        case kind
        when :step then step_answer(name, more)
        when :sleep then @sleeps[name] = fields[:for] || fields[:until]
        when :wait then @signals.key?(name) ? { "signal" => @signals[name] } : { "timed_out" => true }
        when :call then { "results" => fields[:tasks].map { |task| outcome(task) } }
        end
      end

      def step_answer(name, more)
        return { "step" => name, "run" => true } unless more || @recorded.key?(name)

        @steps[name] = more ? JSON.parse("{#{more}}", max_nesting: 0)["result"] : @recorded[name]
        { "step" => name, "recorded" => @steps[name] }
      end

      # The second use of a name is charge#2.
      def numbered(name)
        number = @names[name] += 1
        number == 1 ? name : "#{name}##{number}"
      end

      def outcome(task)
        @calls << task
        id = 1000 + @calls.length
        @children.key?(task[:class]) or
          Checks.invalid("the test calls a child of class #{task[:class]}; add it to children:")
        child = @children[task[:class]]
        child = child.call(Json.round_trip(task[:parameters], "the parameters")) if child.respond_to?(:call)
        raise child if child.is_a?(Exception)

        { "task_id" => id, "status" => "stopped", "result" => Json.round_trip(child, "the result of a child") }
      rescue InvalidArgument
        raise
      rescue StandardError => error
        { "task_id" => id, "status" => "failed",
          "error" => { "exception" => error.class.name, "message" => error.message, "backtrace" => [] } }
      end

      def texts(hash)
        hash.to_h { |name, value| [name.respond_to?(:task_class) ? name.task_class : name.to_s, plain(value)] }
      end

      def plain(value)
        value.respond_to?(:call) || value.is_a?(Exception) ? value : Json.round_trip(value, "a value of the test")
      end

      def ended(dependencies)
        texts(dependencies).each_with_index.to_h do |(name, value), nth|
          fields = { "id" => nth + 101, "status" => "stopped", "result" => value }
          fields = { "id" => nth + 101, "status" => "failed", "error" => value.message } if value.is_a?(Exception)
          [name, fields]
        end
      end
    end
  end
end
