# frozen_string_literal: true

require_relative "helper"
require_relative "../lib/task_engine/testing"

# The helper for tests of tasks.
class TestingTest < Minitest::Test
  Testing = TaskEngine::Testing

  class Order < TaskEngine::Task
    def perform(item:, options: {})
      ctx.log("order of #{item}\n", options.keys)
      ctx.progress(10, "begun")
      receipt = ctx.step("charge") { { number: 7 } }
      approval = ctx.wait_for("approved", timeout: "7d")
      ctx.sleep("cooling off", "3d")
      parcel = ctx.call("ship", { item: })
      [receipt, approval, parcel, ctx.result_of("extract")]
    rescue TaskEngine::WaitTimedOut
      ctx.step("refund") { true }
      "not approved"
    rescue TaskEngine::ChildFailed => error
      error.message
    end
  end

  TaskEngine.task("testing.cancelled") do |ctx|
    ctx.step("one") { ctx.cancel }
    ctx.step("two") { true }
  end
  TaskEngine.task("testing.repeated") { |ctx| Array.new(2) { |nth| ctx.step("n") { nth } } }

  def test_plays_the_engine
    ctx = Testing::Context.new(signals: { "approved" => { by: "ada" } }, dependencies: { extract: 3 },
                               children: { "ship" => ->(parameters) { "parcel of #{parameters["item"]}" } })
    result = Testing.run(Order, { item: "book", options: { gift: true } }, ctx)
    assert_equal [{ "number" => 7 }, { "by" => "ada" }, "parcel of book", 3], result
    assert_equal ["order of book", "[\"gift\"]"], ctx.logs
    assert_equal [[10, "begun"]], ctx.progresses
    assert_equal({ "charge" => { "number" => 7 } }, ctx.steps)
    assert_equal({ "cooling off" => 259_200 }, ctx.sleeps)
    assert_equal [{ class: "ship", parameters: { item: "book" } }], ctx.calls
    assert_equal ["TestingTest::Order", 1, 0, "1"],
                 [ctx.task_class, ctx.attempt, ctx.retry_number, ctx.correlation_id]
  end

  def test_waits_time_out_and_children_fail
    ctx = Testing::Context.new
    assert_equal "not approved", Testing.run(Order, { item: "book" }, ctx)
    assert_equal %w[charge refund], ctx.steps.keys
    ctx = Testing::Context.new(signals: { approved: nil }, children: { "ship" => RuntimeError.new("too heavy") })
    assert_equal "task 1001 failed: too heavy", Testing.run(Order, { item: "piano" }, ctx)
    error = assert_raises(TaskEngine::InvalidArgument) do
      Testing.run(Order, { item: "x" }, Testing::Context.new(signals: { approved: 1 }))
    end
    assert_includes error.message, "add it to children:"
  end

  def test_recorded_steps_do_not_run
    ctx = Testing::Context.new(recorded: { "n" => "recorded" })
    assert_equal ["recorded", 1], Testing.run("testing.repeated", {}, ctx)
    assert_equal({ "n" => "recorded", "n#2" => 1 }, ctx.steps)
  end

  def test_raises_what_the_task_raises
    assert_raises(TaskEngine::InvalidParameters) { Testing.run(Order, { itm: 1 }) }
    assert_raises(TaskEngine::InvalidArgument) { Testing.run("testing.unheard") }
    assert_raises(TaskEngine::Cancelled) { Testing.run("testing.cancelled") }
    error = assert_raises(TaskEngine::ResultMissing) { Testing::Context.new.result_of("extract") }
    assert_includes error.message, "there is none"
    failed = Testing::Context.new(dependencies: { extract: RuntimeError.new("no") })
    assert_includes assert_raises(TaskEngine::ResultMissing) { failed.result_of(:extract) }.message, "failed: no"
  end
end
