# frozen_string_literal: true

require_relative "helper"
require "active_record"
require "pg"
require "securerandom"
require "sequel"

# Creation over each driver, on PostgreSQL.
class CreationTest < Minitest::Test
  include Helper

  URL = ENV.fetch("TASK_ENGINE_TEST_DATABASE_URL") { abort "set TASK_ENGINE_TEST_DATABASE_URL to a migrated database" }

  class Resize < TaskEngine::Task
    options queue: "pictures", priority: 4, secret: ["card.number"]
    def perform(width:, height: nil); end
  end

  # The database may be used by several runs.
  RUN = SecureRandom.hex(4)
  PG_CONNECTION = PG.connect(URL)
  SEQUEL = Sequel.connect(URL)
  ActiveRecord::Base.establish_connection(URL.sub(/\Apostgres:/, "postgresql:"))
  RECORD = Class.new(ActiveRecord::Base) { self.abstract_class = true }

  # The connection, and code that runs a block in a transaction and rolls it back.
  DRIVERS = {
    "pg" => [PG_CONNECTION, lambda { |&block|
      PG_CONNECTION.exec("BEGIN")
      block.call
      PG_CONNECTION.exec("ROLLBACK")
    }],
    "sequel" => [SEQUEL, ->(&block) { SEQUEL.transaction(rollback: :always, &block) }],
    "active_record" => [ActiveRecord::Base.connection, lambda { |&block|
      ActiveRecord::Base.transaction { block.call && raise(ActiveRecord::Rollback) }
    }],
    "model" => [RECORD, ->(&block) { RECORD.transaction { block.call && raise(ActiveRecord::Rollback) } }]
  }.freeze

  def row(id)
    row = PG_CONNECTION.exec_params(<<~SQL, [id]).first
      SELECT task_class, task_parameters, context, queue, priority,
        extract(epoch FROM scheduled_at - created_at)::numeric(12, 3) AS wait, scheduled_at
      FROM task_engine.created_tasks WHERE id = $1
    SQL
    row&.merge("task_parameters" => JSON.parse(row["task_parameters"]), "context" => JSON.parse(row["context"]))
  end

  def count
    PG_CONNECTION.exec("SELECT count(*) FROM task_engine.created_tasks").getvalue(0, 0).to_i
  end

  DRIVERS.each do |driver, (connection, rolled_back)|
    define_method("test_creates_with_all_options_over_#{driver}") do
      PG_CONNECTION.exec("SELECT task_engine.set_limit('api', '{\"max\": 2}')")
      parameters = { width: 80, "text" => "it's \\ $1 ? :a \u00fc \\' \u2028", deep: [{ a: nil }] }
      id = TaskEngine.create(connection, :resize, parameters, after: "1h 30m", queue: "q", priority: -3,
                                                              limits: { api: "acme" }, correlation_id: "order-1",
                                                              traceparent: "00-#{"a" * 32}-#{"b" * 16}-01",
                                                              retry: { maximum: 3, first_delay: "10s", jitter: 0 })
      created = row(id)
      assert_equal ["resize", "q", "-3", "5400.000"], created.values_at("task_class", "queue", "priority", "wait")
      assert_equal JSON.parse(JSON.generate(parameters)), created["task_parameters"]
      assert_equal({ "limits" => { "api" => "acme" }, "correlation_id" => "order-1",
                     "traceparent" => "00-#{"a" * 32}-#{"b" * 16}-01",
                     "retry" => { "maximum" => 3, "first_delay_ms" => 10_000, "jitter" => 0 } }, created["context"])

      at = TaskEngine.create(connection, "resize", at: Time.at(1_900_000_000))
      assert_equal 1_900_000_000, Time.parse(row(at)["scheduled_at"]).to_i
      assert_equal ["default", "0", "0.000"],
                   row(TaskEngine.create(connection, "a")).values_at("queue", "priority", "wait")
    end

    define_method("test_rolls_back_with_the_transaction_over_#{driver}") do
      before = count
      id = nil
      rolled_back.call { id = TaskEngine.create(connection, "resize", { width: 80 }) }
      assert_kind_of Integer, id
      assert_nil row(id)
      assert_equal before, count
    end

    define_method("test_unique_tasks_over_#{driver}") do
      create = lambda { |parameters, **options|
        TaskEngine.create(connection, "index", parameters, unique: "customer #{driver} #{RUN}", **options)
      }
      first = create.call({ n: 1 })
      assert_predicate first, :created?
      kept = create.call({ n: 2 })
      assert_equal [first.task_id, :kept, true], [kept.task_id, kept.outcome, kept.kept?]
      replaced = create.call({ n: 3 }, scope: :waiting, on_conflict: :replace, after: 5)
      assert_equal [first.task_id, :replaced, true], [replaced.task_id, replaced.outcome, replaced.replaced?]
      assert_equal [{ "n" => 3 }, "customer #{driver} #{RUN}"],
                   [row(first.task_id)["task_parameters"], row(first.task_id)["context"]["unique_key"]]
      assert_predicate create.call({ n: 4 }, scope: "1 day", on_conflict: "keep"), :kept?
    end

    define_method("test_many_tasks_and_classes_over_#{driver}") do
      ids = TaskEngine.create_many(connection, [{ class: "a", parameters: { n: 1 }, after: 60 },
                                                { class: Resize, parameters: { width: 1 }, priority: 9 },
                                                { class: "c" }])
      assert_equal ids.sort, ids
      assert_equal %w[a CreationTest::Resize c], (ids.map { |id| row(id)["task_class"] })
      assert_equal %w[60.000 0.000 0.000], (ids.map { |id| row(id)["wait"] })
      resize = row(ids[1])
      assert_equal ["pictures", "9", ["card.number"]],
                   [resize["queue"], resize["priority"], resize["context"]["secret_parameters"]]
      mixed = TaskEngine.create_many(connection, [{ class: "a" }, { class: "a", unique: "mixed #{driver} #{RUN}" }])
      assert_equal [Integer, TaskEngine::Creation], mixed.map(&:class)
      assert_equal [], TaskEngine.create_many(connection, [])

      ids = Resize.create_many(connection, [{ width: 1 }, { width: 2, height: 3 }])
      assert_equal [{ "width" => 1 }, { "width" => 2, "height" => 3 }], (ids.map { |id| row(id)["task_parameters"] })
      later = row(Resize.set(after: "10m", queue: "slow").create(connection, width: 80))
      assert_equal %w[slow 4 600.000], later.values_at("queue", "priority", "wait")
    end

    define_method("test_flows_and_dependencies_over_#{driver}") do
      ids = TaskEngine.create_flow(connection, {
                                     extract: { class: "extract", parameters: { day: 1 } },
                                     load: { class: Resize, parameters: { width: 1 }, after: :extract, delay: "10m" },
                                     "alert" => { class: "alert", after_failure: ["extract", :load], retries: 1 }
                                   }, name: "nightly", correlation_id: "nightly #{driver} #{RUN}")
      assert_equal %w[alert extract load], ids.keys.sort
      load = row(ids["load"])
      assert_equal ["nightly #{driver} #{RUN}", "load", ["card.number"]],
                   load["context"].values_at("correlation_id", "flow_task", "secret_parameters")
      assert_equal %w[pictures 600.000], load.values_at("queue", "wait")
      assert_equal [[ids["extract"], "failure"], [ids["load"], "failure"]], dependencies(ids["alert"])

      last = TaskEngine.create(connection, "report", { n: 1 }, after_task: ids["extract"],
                                                               after_task_end: [ids["alert"]], after: 60)
      assert_equal [[ids["extract"], "success"], [ids["alert"], "end"]].sort, dependencies(last)
      assert_equal ["60.000", { "n" => 1 }], row(last).values_at("wait", "task_parameters")
    end

    define_method("test_signals_over_#{driver}") do
      created = TaskEngine.create(connection, "order", {}, unique: "order #{driver} #{RUN}")
      assert_equal :kept, TaskEngine.signal(connection, created.task_id, :approved, { by: "ada" })
      assert_equal :duplicate, TaskEngine.signal_unique(connection, "order", "order #{driver} #{RUN}", "approved")
      assert_equal :kept, TaskEngine.signal_unique(connection, "order", "order #{driver} #{RUN}", "paid")
      assert_equal :not_found, TaskEngine.signal(connection, 2**40, "approved")
      payloads = PG_CONNECTION.exec_params("SELECT payload FROM task_engine.signals WHERE task_id = $1 ORDER BY name",
                                           [created.task_id]).column_values(0)
      assert_equal ["{\"by\": \"ada\"}", "null"], payloads
    end

    define_method("test_errors_of_the_server_have_their_code_over_#{driver}") do
      error = assert_raises(TaskEngine::DatabaseError) do
        TaskEngine.create(connection, "resize", {}, limits: { unheard: nil })
      end
      assert_equal "23514", error.code
      assert_match(/\Alimit "unheard" does not exist/, error.message)
      refute_includes error.message, "CONTEXT"
      assert_kind_of PG::Error, [error.cause, error.cause.cause].grep(PG::Error).first
    end
  end

  def test_missing_tables_are_explained
    PG_CONNECTION.exec("BEGIN; ALTER SCHEMA task_engine RENAME TO elsewhere")
    error = assert_raises(TaskEngine::DatabaseError) { TaskEngine.create(PG_CONNECTION, "a") }
    assert_equal "3F000", error.code
    assert_includes error.message, "does not exist; create the tables with `task-engine migrate`"
  ensure
    PG_CONNECTION.exec("ROLLBACK")
  end

  def test_lost_connections_are_database_errors
    connection = PG.connect(URL)
    connection.close
    error = assert_raises(TaskEngine::DatabaseError) { TaskEngine.create(connection, "a") }
    assert_nil error.code
    assert_includes error.message, "connection is closed"
  end

  def test_refused_flows_say_why
    error = assert_raises(TaskEngine::DatabaseError) do
      TaskEngine.create_flow(PG_CONNECTION, { a: { class: "a", after: "b" }, b: { class: "b", after: "a" } })
    end
    assert_equal "22023", error.code
    assert_match(/wait for each other/, error.message)
  end

  def test_wrong_arguments_are_found_before_anything_is_sent
    before = count
    {
      [["resize", { width: 80 }], { aftr: 1 }] => "a task has no option aftr; did you mean after?",
      [["resize"], { width: 80 }] => "Put parameters into braces: { width: … }",
      [[""], {}] => "the class of a task is \"\"; write a text of 1 to 200 bytes",
      [%w[a text], {}] => "parameters is \"text\"; write a Hash like",
      [["a", { at: Time.now }], {}] => "the parameters contains a Time, which is not JSON",
      [["a"], { after: "soon" }] => "after is \"soon\"; write a duration like \"30s\"",
      [["a"], { after: -1 }] => "after is -1",
      [["a"], { at: "tomorrow" }] => "at is \"tomorrow\"; write a Time",
      [["a"], { at: Date.new(2027) }] => "write a Time",
      [["a"], { at: Time.now, after: 1 }] => "at and after are given; write one of them",
      [["a"], { priority: 2**31 }] => "priority is 2147483648; write a whole number from -2147483648 to 2147483647",
      [["a"], { queue: "" }] => "queue is \"\"",
      [["a"], { scope: "waiting" }] => "add unique: \"KEY\"",
      [["a"], { unique: "k", scope: "often" }] => "scope is \"often\"; write :active, :waiting or a duration",
      [["a"], { unique: "k", on_conflict: "fail" }] => "on_conflict is \"fail\"; write keep, replace,",
      [["a"], { unique: "k", after_task: 1 }] => "a task with dependencies cannot be unique",
      [["a"], { after_task: "extract" }] => "after_task is \"extract\"; write the id of a task",
      [["a"], { limits: { a: 1, b: 2, c: 3, d: 4 } }] => "a task names 4 limits; at most 3 are possible",
      [["a"], { traceparent: "x" }] => "traceparent is \"x\"",
      [["a"], { retry: { max: 3 } }] => "retry has no option max; known: maximum,",
      [["a"], { retry: { jitter: 2 } }] => "jitter of retry is 2; write a number from 0 to 1",
      [["a"], { retries: 1, retry: { maximum: 2 } }] => "retries and retry are given",
      [["a"], { correlation_id: "" }] => "correlation_id is \"\"",
      [[Resize, { widht: 80 }], {}] => "task class CreationTest::Resize misses the parameter width",
      [[Resize, { width: 80, hight: 1 }], {}] => "has no parameter hight; did you mean height?"
    }.each do |(arguments, options), message|
      error = assert_raises(TaskEngine::InvalidArgument) { TaskEngine.create(PG_CONNECTION, *arguments, **options) }
      assert_includes error.message, message
    end
    {
      {} => "a flow needs a task", { a: { class: "a", after: "bb" }, b: { class: "b" } } => "did you mean b?",
      { a: { class: "a", delai: 1 } } => "did you mean delay?", { a: "a" } => "task a is \"a\"; write a Hash"
    }.each do |flow, message|
      error = assert_raises(TaskEngine::InvalidArgument) { TaskEngine.create_flow(PG_CONNECTION, flow) }
      assert_includes error.message, message
    end
    assert_raises(TaskEngine::InvalidArgument) do
      TaskEngine.create_many(PG_CONNECTION, [{ class: "a", after_task: 1 }])
    end
    assert_raises(TaskEngine::InvalidArgument) { TaskEngine.signal(PG_CONNECTION, "1", "approved") }
    error = assert_raises(TaskEngine::InvalidArgument) { TaskEngine.create("postgres://localhost", "a") }
    assert_includes error.message, "the connection is a String; pass a PG::Connection"
    assert_equal before, count
  end

  def test_other_stores_are_refused
    error = assert_raises(TaskEngine::InvalidArgument) { TaskEngine.create(Sequel.mock, "a") }
    assert_includes error.message, "SQL creates tasks only on PostgreSQL"
  end

  def test_durations_of_active_support
    require "active_support/core_ext/integer/time"
    id = TaskEngine.create(PG_CONNECTION, "a", {}, after: 10.minutes)
    assert_equal "600.000", row(id)["wait"]
  end

  private

  def dependencies(id)
    rows = PG_CONNECTION.exec_params("SELECT depends_on, condition FROM task_engine.task_dependencies " \
                                     "WHERE task_id = $1 ORDER BY depends_on", [id]).values
    rows.map { |on, condition| [on.to_i, condition] }
  end
end
