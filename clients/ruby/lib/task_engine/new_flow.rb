# frozen_string_literal: true

module TaskEngine
  # A flow that is about to be created, in the form of the HTTP API and of the SQL function.
  class NewFlow
    DEPENDENCIES = %i[after after_end after_failure].freeze
    OPTIONS = %i[class parameters queue priority at delay limits traceparent retry retries]
              .concat(DEPENDENCIES).freeze

    # The tasks, with what only SQL takes: the paths of secret parameters.
    attr_reader :fields, :secrets

    def initialize(tasks, name: nil, correlation_id: nil)
      Checks.hash_of(tasks, "the tasks of a flow", "{ load: { class: \"load\", after: \"extract\" } }")
      tasks.empty? and Checks.invalid("a flow needs a task, like { load: { class: \"load\" } }")
      @names = tasks.keys.map { |task| Checks.name_of(task, "the name of a task in a flow") }
      @secrets = {}
      @fields = {}
      @fields[:name] = Checks.name_of(name, "the name of a flow") unless name.nil?
      @fields[:correlation_id] = Checks.name_of(correlation_id, "correlation_id") unless correlation_id.nil?
      @fields[:tasks] = tasks.to_h { |task, options| [task.to_s, task(task.to_s, options)] }
    end

    # A flow of one task that depends on tasks that exist.
    def self.of(new_task)
      flow = allocate
      flow.send(:assign_single, new_task)
      flow
    end

    private

    def task(name, given)
      Checks.hash_of(given, "task #{name}", "{ class: \"load\", after: \"extract\" }")
      options = Checks.options(given, OPTIONS, "task #{name} of a flow")
      after = options.slice(*DEPENDENCIES)
      # `after` is a name here; a task on its own has it for the delay.
      own = options.except(*DEPENDENCIES, :delay)
      own[:after] = options[:delay] if options.key?(:delay)
      new_task = NewTask.from(own)
      @secrets[name] = new_task.secret unless new_task.secret.empty?
      flow_fields(new_task).merge(after.compact.transform_values { |targets| targets(name, targets) })
    end

    def targets(task, targets)
      Array(targets).map do |target|
        next Checks.task_id(target, "a dependency of task #{task}") if target.is_a?(Integer)

        @names.include?(target.to_s) or
          Checks.invalid("task #{task} depends on #{target.inspect}, which is no task of the flow; " \
                         "#{Checks.hint(target.to_s, @names)}")
        target.to_s
      end
    end

    def assign_single(new_task)
      name = new_task.fields[:class]
      @secrets = new_task.secret.empty? ? {} : { name => new_task.secret }
      @fields = { tasks: { name => flow_fields(new_task).merge(new_task.dependencies) } }
      correlation_id = new_task.fields[:correlation_id]
      @fields[:correlation_id] = correlation_id if correlation_id
    end

    def flow_fields(new_task)
      fields = new_task.fields.except(:after, :correlation_id)
      fields[:delay] = new_task.fields[:after] if new_task.fields.key?(:after)
      fields
    end
  end
end
