# frozen_string_literal: true

module TaskEngine
  # Creation by the SQL functions of Task Engine, over the connection of the caller and so in its
  # transaction. Drivers are recognised, not required: the application has loaded its own.
  class Database
    # One text goes to the server, and is unpacked there: each driver has its own arrays.
    COLUMNS = "class text, parameters jsonb, scheduled_at timestamptz, delay interval, priority integer, " \
              "queue text, context jsonb, unique_key text, unique_scope text, on_conflict text"
    ARRAYS = COLUMNS.split(", ").map { |column| "array_agg(t.#{column.split.first} ORDER BY t.place)" }.freeze
    ROWS = "ROWS FROM (jsonb_to_recordset(CAST($1 AS jsonb)) AS (#{COLUMNS})) WITH ORDINALITY " \
           "AS t(#{COLUMNS.split(", ").map { |column| column.split.first }.join(", ")}, place)".freeze
    CREATE = "SELECT created.id AS task_id, 'created' AS outcome " \
             "FROM (SELECT #{ARRAYS.first(7).each_with_index.map { |array, nth| "#{array} AS a#{nth}" }.join(", ")} " \
             "FROM #{ROWS}) AS task " \
             "CROSS JOIN LATERAL task_engine.create_tasks(#{(0..6).map { |nth| "task.a#{nth}" }.join(", ")}) " \
             "WITH ORDINALITY AS created(id, place) ORDER BY created.place".freeze
    CREATE_UNIQUE = "SELECT created.task_id, created.outcome " \
                    "FROM (SELECT #{ARRAYS.each_with_index.map { |array, nth| "#{array} AS a#{nth}" }.join(", ")} " \
                    "FROM #{ROWS}) AS task CROSS JOIN LATERAL " \
                    "task_engine.create_unique_tasks(#{(0..9).map { |nth| "task.a#{nth}" }.join(", ")}) " \
                    "WITH ORDINALITY AS created(task_id, outcome, place) ORDER BY created.place".freeze
    CREATE_FLOW = "SELECT name, task_id FROM task_engine.create_flow(CAST($1 AS jsonb))"
    SIGNAL = "SELECT task_engine.signal((s.v ->> 'task_id')::bigint, s.v ->> 'name', s.v -> 'payload') AS status " \
             "FROM (SELECT CAST($1 AS jsonb) AS v) AS s"
    SIGNAL_UNIQUE = "SELECT f.status FROM (SELECT CAST($1 AS jsonb) AS v) AS s CROSS JOIN LATERAL " \
                    "task_engine.signal_unique(s.v ->> 'class', s.v ->> 'key', s.v ->> 'name', s.v -> 'payload') AS f"

    def initialize(connection)
      @run = Drivers.runner(connection)
    end

    def create(tasks)
      sql = tasks.any?(&:unique?) ? CREATE_UNIQUE : CREATE
      query(sql, tasks.map { |task| row(task) }).map do |created|
        Creation.new(Integer(created["task_id"]), created["outcome"].to_sym)
      end
    end

    def create_flow(flow)
      tasks = flow.fields[:tasks].to_h do |name, task|
        secret = flow.secrets[name]
        [name, secret ? task.merge(context: { secret_parameters: secret }) : task]
      end
      query(CREATE_FLOW, flow.fields.merge(tasks:)).to_h { |row| [row["name"], Integer(row["task_id"])] }
    end

    def signal(task_id, name, payload)
      query(SIGNAL, { task_id:, name:, payload: }).first["status"].to_sym
    end

    def signal_unique(task_class, key, name, payload)
      query(SIGNAL_UNIQUE, { class: task_class, key:, name:, payload: }).first["status"].to_sym
    end

    private

    def row(task)
      fields = task.fields
      context = fields.slice(:limits, :correlation_id, :traceparent, :retry)
      context[:secret_parameters] = task.secret unless task.secret.empty?
      fields.slice(:class, :parameters, :scheduled_at, :queue, :priority, :on_conflict)
            .merge(delay: fields[:after], context:, unique_key: fields[:key], unique_scope: fields[:scope])
            .compact
    end

    def query(sql, argument)
      @run.call(sql, JSON.generate(argument, max_nesting: 0))
    rescue StandardError => error
      raise Drivers.error(error)
    end
  end

  # The drivers for PostgreSQL, each as a callable that takes SQL with $1 and one text, and returns
  # rows as Hashes.
  module Drivers
    # Invalid schema name, and undefined table.
    NOT_MIGRATED = %w[3F000 42P01].freeze

    module_function

    def runner(connection)
      # A model class of ActiveRecord, or ActiveRecord::Base.
      if connection.is_a?(Class) && connection.respond_to?(:connection)
        connection = connection.respond_to?(:lease_connection) ? connection.lease_connection : connection.connection
      end
      if connection.respond_to?(:exec_params) then pg(connection)
      elsif connection.respond_to?(:exec_query) && connection.respond_to?(:quote) then active_record(connection)
      elsif connection.respond_to?(:fetch) && connection.respond_to?(:database_type) then sequel(connection)
      else
        Checks.invalid("the connection is a #{connection.class}; pass a PG::Connection, a Sequel::Database, " \
                       "a connection or model class of ActiveRecord, or a TaskEngine::HttpClient")
      end
    end

    # With the SQLSTATE, and the message of the server without its context.
    def error(error)
      driver_error = causes(error).find { |cause| cause.class.ancestors.any? { |it| it.name == "PG::Error" } }
      return error unless driver_error

      result = driver_error.respond_to?(:result) ? driver_error.result : nil
      # PG::PG_DIAG_SQLSTATE and PG::PG_DIAG_MESSAGE_PRIMARY, which are characters.
      code, message = result && %w[C M].map { |field| result.error_field(field.ord) }
      advice = "; create the tables with `task-engine migrate`" if NOT_MIGRATED.include?(code)
      DatabaseError.new("#{message || driver_error.message.strip}#{advice}", code:)
    end

    def pg(connection)
      ->(sql, text) { connection.exec_params(sql, [text]).to_a }
    end

    # exec_query, because the results of select_all may come from a cache.
    def active_record(connection)
      postgres(connection.adapter_name)
      ->(sql, text) { connection.exec_query(sql.sub("$1") { connection.quote(text) }, "TaskEngine").to_a }
    end

    def sequel(connection)
      postgres(connection.database_type.to_s)
      ->(sql, text) { connection.fetch(sql.sub("$1", "?"), text).map { |row| row.transform_keys(&:to_s) } }
    end

    def postgres(name)
      name.match?(/postg/i) or Checks.invalid("the connection is to #{name}; SQL creates tasks only on PostgreSQL. " \
                                              "Pass a TaskEngine::HttpClient for other stores")
    end

    def causes(error)
      found = []
      while error && found.length < 10
        found << error
        error = (error.respond_to?(:wrapped_exception) && error.wrapped_exception) || error.cause
      end
      found
    end
    private_class_method :pg, :active_record, :sequel, :postgres, :causes
  end
end
