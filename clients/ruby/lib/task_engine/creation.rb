# frozen_string_literal: true

module TaskEngine # rubocop:disable Style/Documentation
  # What creating a unique task did: `outcome` is :created, :kept or :replaced.
  Creation = Struct.new(:task_id, :outcome) do
    def created?
      outcome == :created
    end

    def kept?
      outcome == :kept
    end

    def replaced?
      outcome == :replaced
    end
  end

  class << self
    # Creates a task in the transaction of the connection: a PG::Connection, a Sequel::Database, a
    # connection or model class of ActiveRecord, or an HttpClient.
    #
    #   TaskEngine.create(connection, "resize", { width: 80 }, after: "10m")
    #
    # Returns its id; with `unique:`, a Creation.
    def create(connection, task_class, parameters = {}, **options)
      explain_parameters(options)
      task = NewTask.new(task_class, parameters, options)
      store = store(connection)
      return store.create_flow(NewFlow.of(task)).values.first unless task.dependencies.empty?

      created = store.create([task]).first
      task.unique? ? created : created.task_id
    end

    # Creates all tasks, or none. Each is a Hash like { class: "resize", parameters: { width: 80 } },
    # with options as `create` has them. Returns what `create` returns, for each.
    def create_many(connection, tasks)
      tasks = tasks.map { |task| NewTask.from(task) }
      tasks.all? { |task| task.dependencies.empty? } or
        Checks.invalid("create_many creates no tasks with dependencies; call create_flow")
      return [] if tasks.empty?

      store(connection).create(tasks).zip(tasks).map { |created, task| task.unique? ? created : created.task_id }
    end

    # Creates tasks that depend on each other, all or none. Returns their ids by their names.
    #
    #   TaskEngine.create_flow(connection, {
    #     extract: { class: "extract" },
    #     load: { class: "load", after: :extract }
    #   }, name: "nightly")
    def create_flow(connection, tasks, name: nil, correlation_id: nil)
      store(connection).create_flow(NewFlow.new(tasks, name:, correlation_id:))
    end

    # Sends a signal to a task. Returns :delivered or :kept; or, if it is refused, :duplicate,
    # :timed_out, :task_ended or :not_found.
    def signal(connection, task_id, name, payload = nil)
      check_signal(name, payload)
      store(connection).signal(Checks.task_id(task_id), name.to_s, payload)
    end

    # The same, for the task that was created last with this class and unique key.
    def signal_unique(connection, task_class, key, name, payload = nil)
      check_signal(name, payload)
      task_class = task_class.definition.name if task_class.is_a?(Class) && task_class <= Task
      key = Checks.name_of(key, "the unique key", bytes: 500)
      store(connection).signal_unique(Checks.name_of(task_class, "the class"), key, name.to_s, payload)
    end

    private

    def store(connection)
      connection.is_a?(HttpClient) ? connection.store : Database.new(connection)
    end

    # create(connection, "resize", width: 80) looks like an option.
    def explain_parameters(options)
      unknown = options.keys.find { |name| !NewTask::OPTIONS.include?(name) } or return

      Checks.invalid("a task has no option #{unknown}; #{Checks.hint(unknown, NewTask::OPTIONS)}. " \
                     "Put parameters into braces: { #{unknown}: … }")
    end

    def check_signal(name, payload)
      Checks.name_of(name, "the name of a signal")
      Json.generate(payload, "the payload")
    rescue NotJson => error
      raise InvalidArgument, error.message
    end
  end
end
