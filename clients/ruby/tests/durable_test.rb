# frozen_string_literal: true

require_relative "helper"

# Durable calls and cancellation of a real worker process; the test plays the engine.
class DurableTest < Minitest::Test
  include Helper

  def test_step_runs_once_and_returns_what_is_recorded
    with_worker do |worker|
      worker.task("1.1", "check.step", { values: [1, "two", nil] })
      assert_equal({ "id" => "1.1", "step" => "value" }, worker.read)
      worker.send_line({ id: "1.1", step: "value", run: true })
      assert_equal({ "id" => "1.1", "step" => "value", "result" => 1 }, worker.read)
      worker.send_line({ id: "1.1", step: "value", recorded: "one" })
      assert_equal({ "id" => "1.1", "step" => "value" }, worker.read)
      worker.send_line({ id: "1.1", step: "value#2", recorded: nil })
      assert_equal({ "id" => "1.1", "step" => "value" }, worker.read)
      worker.send_line({ id: "1.1", step: "value#3", run: true })
      assert_equal({ "id" => "1.1", "step" => "value#3", "result" => nil }, worker.read)
      worker.send_line({ id: "1.1", step: "value#3", recorded: nil })
      assert_equal ["one", nil, nil], worker.read["result"]
    end
  end

  def test_sleep_and_wait_and_call
    with_worker do |worker|
      worker.task("1.1", "check.sleep", { time: "3d" })
      assert_equal({ "id" => "1.1", "sleep" => "pause", "for" => 259_200 }, worker.read)
      worker.send_line({ id: "1.1", sleep: "pause", over: true })
      assert_equal "awake", worker.read["result"]

      worker.task("2.1", "check.wait", { timeout: "7d" })
      assert_equal({ "id" => "2.1", "wait" => "approved", "timeout" => 604_800 }, worker.read)
      worker.send_line({ id: "2.1", wait: "approved", timed_out: true })
      assert_equal "timed out", worker.read["result"]

      worker.task("3.1", "check.call", { class: "resize", parameters: { width: 80 } })
      tasks = [{ "class" => "resize", "parameters" => { "width" => 80 } }]
      assert_equal({ "id" => "3.1", "call" => "resize", "tasks" => tasks }, worker.read)
      worker.send_line({ id: "3.1", call: "resize", results: [{ task_id: 8, status: "stopped", result: [1] }] })
      assert_equal [1], worker.read["result"]

      worker.task("4.1", "check.call", { class: "resize", parameters: {} })
      worker.read
      error = { exception: "E", message: "too wide", backtrace: [] }
      worker.send_line({ id: "4.1", call: "resize", results: [{ task_id: 8, status: "failed", error: }] })
      assert_equal "failed: too wide", worker.read["result"]
    end
  end

  def test_other_forms_of_durable_calls
    with_code(<<~RUBY) do |worker|
      TaskEngine.task("until") { |ctx| ctx.sleep("night", until: Time.utc(2027, 1, 31, 8)) }
      TaskEngine.task("album") do |ctx|
        children = ctx.call_all([{ class: :resize, parameters: { width: 1 }, queue: "q", priority: 2 },
                                 { class: "resize" }], name: "pictures")
        children.map { |child| child.succeeded? ? child.result : child.error_message }
      end
      TaskEngine.task("nothing") { |ctx| ctx.call_all([]) }
      TaskEngine.task("nested") { |ctx| ctx.step("a") { ctx.step("b") { 1 } } }
      TaskEngine.task("wrong") { |ctx| ctx.call("resize", width: 80) }
      TaskEngine.task("uncaught") { |ctx| ctx.call("resize") }
      TaskEngine.task("bad step") { |ctx| ctx.step("a") { Object } }
      TaskEngine.serve
    RUBY
      worker.task("1.1", "until")
      assert_equal({ "id" => "1.1", "sleep" => "night", "until" => "2027-01-31T08:00:00.000000Z" }, worker.read)
      worker.task("2.1", "album")
      assert_equal({ "id" => "2.1", "call" => "pictures",
                     "tasks" => [{ "class" => "resize", "parameters" => { "width" => 1 }, "queue" => "q",
                                   "priority" => 2 },
                                 { "class" => "resize", "parameters" => {} }] }, worker.read)
      worker.send_line({ id: "2.1", call: "pictures", results: [
                         { task_id: 8, status: "stopped", result: 5 },
                         { task_id: 9, status: "cancelled", error: { message: "not needed" } }
                       ] })
      assert_equal [5, "not needed"], worker.read["result"]
      worker.task("3.1", "nothing")
      assert_equal [], worker.read["result"]

      worker.task("4.1", "nested")
      worker.read
      worker.send_line({ id: "4.1", step: "a", run: true })
      assert_equal "TaskEngine::StepInsideStep", worker.read["error"]["exception"]
      worker.task("5.1", "wrong")
      assert_includes worker.read["error"]["message"], "put parameters into braces"
      worker.task("6.1", "uncaught")
      worker.read
      worker.send_line({ id: "6.1", call: "resize", results: [{ task_id: 8, status: "failed",
                                                                error: { message: "too wide" } }] })
      error = worker.read["error"]
      assert_equal ["TaskEngine::ChildFailed", "task 8 failed: too wide"], error.values_at("exception", "message")
      worker.task("7.1", "bad step")
      worker.read
      worker.send_line({ id: "7.1", step: "a", run: true })
      assert_equal "the result of step a contains a Class, which is not JSON; use texts, numbers, true, false, nil, " \
                   "lists and Hashes", worker.read["error"]["message"]
    end
  end

  def test_steps_of_several_threads_get_their_own_answers
    with_code(<<~RUBY) do |worker|
      TaskEngine.task("threads") do |ctx|
        first = Thread.new { ctx.step("a") { 1 } }
        Thread.pass until first.status == "sleep"
        second = Thread.new { ctx.wait_for("b", timeout: 1) }
        [first.value, second.value]
      end
      TaskEngine.serve
    RUBY
      worker.task("1.1", "threads")
      assert_equal %w[a b], [worker.read["step"], worker.read["wait"]]
      worker.send_line({ id: "1.1", step: "a", recorded: "from a" })
      worker.send_line({ id: "1.1", wait: "b", signal: "from b" })
      assert_equal ["from a", "from b"], worker.read["result"]
    end
  end

  # `rescue => error` does not see it, and nothing more is sent.
  def test_ended_is_not_caught
    with_worker do |worker|
      worker.task("1.1", "check.sleep", { time: "3d" })
      worker.read
      worker.send_line({ id: "1.1", ended: "suspended", message: "it sleeps" })
      assert_equal({ "id" => "1.1", "result" => "a" }, worker.run("check.echo", { value: "a" }))
      rest, status, = worker.close
      assert_empty rest
      assert_predicate status, :success?
    end
  end

  def test_code_that_catches_everything_sends_nothing_after_the_end
    with_code(<<~RUBY) do |worker|
      TaskEngine.task("stubborn") do |ctx|
        begin
          ctx.sleep("pause", "3d")
        rescue Exception
          5.times do
            ctx.log("still here")
          rescue Exception
            nil
          end
          begin
            ctx.step("more") { 1 }
          rescue Exception
            "done"
          end
        end
      end
      TaskEngine.task("next") { nil }
      TaskEngine.serve(concurrency: 1)
    RUBY
      worker.task("1.1", "stubborn")
      worker.read
      worker.send_line({ id: "1.1", ended: "failed", message: "it could not be recorded" })
      worker.task("2.1", "next")
      assert_equal "2.1", worker.read["id"]
      assert_empty worker.close.first
    end
  end

  def test_cancel_ends_durable_calls_and_later_logs
    with_code(<<~RUBY) do |worker|
      TaskEngine.task("waits") do |ctx|
        ctx.wait_for("approved", timeout: "1d")
      rescue => error
        "caught \#{error.class}"
      end
      TaskEngine.task("logs") do |ctx|
        ctx.log("begun")
        ctx.wait_for_cancel
        begin
          ctx.log("too late")
        rescue => error
          "caught \#{error.class}"
        end
      end
      TaskEngine.task("polls") do |ctx|
        raise "too early" if ctx.cancelled? || ctx.wait_for_cancel("10ms")
        ctx.check_cancelled
        ctx.progress(1)
        Thread.pass until ctx.cancelled?
        ctx.progress(2) rescue 5
      end
      TaskEngine.serve
    RUBY
      %w[waits logs polls].each_with_index do |name, nth|
        worker.task("#{nth}.1", name)
        worker.read
        worker.send_line({ cancel: "#{nth}.1" })
        answer = worker.read
        assert_equal ["#{nth}.1", "TaskEngine::Cancelled", "the task was cancelled, or its time is over"],
                     [answer["id"], answer["error"]["exception"], answer["error"]["message"]]
      end
    end
  end

  def test_results_of_dependencies_by_name
    dependencies = { "extract" => { "id" => 1, "status" => "stopped", "result" => nil },
                     "7" => { "id" => 7, "status" => "failed", "error" => "no" } }
    with_code(<<~RUBY) do |worker|
      TaskEngine.task("load") { |ctx, of:| [ctx.result_of(of)] }
      TaskEngine.serve
    RUBY
      assert_equal [nil], worker.run("load", { of: "extract" }, dependencies:)["result"]
      assert_equal [nil], worker.run("load", { of: 1 }, dependencies:)["result"]
      assert_equal "task 7 (7) has no result: failed: no",
                   worker.run("load", { of: 7 }, dependencies:)["error"]["message"]
      assert_equal "the task does not depend on \"extrat\"; did you mean extract?",
                   worker.run("load", { of: "extrat" }, dependencies:)["error"]["message"]
    end
  end
end
