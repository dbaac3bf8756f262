# frozen_string_literal: true

require_relative "helper"

# A real worker process; the test plays the engine.
class WorkerTest < Minitest::Test
  include Helper

  def test_announces_classes_with_options
    with_code(<<~RUBY) do |worker|
      TaskEngine.task("greet", retries: 5, timeout: 30, retry: nil, queue: :mail, priority: 3, secret: "card",
                               rate: "100/1s", parameters: { type: "object" }) { |_ctx, **| nil }
      class Resize < TaskEngine::Task
        options retry: { maximum: 2, first_delay: "1m 30s" }, limit: { max: 2, key: "customer" }, grace: "1s"
        def perform(width:); end
      end
      class Thumbnail < Resize
        task_class "pictures.thumbnail"
        options in_order: true
      end
      TaskEngine.serve(concurrency: 7)
    RUBY
      announcement = worker.announcement
      assert_equal 1, announcement["protocol"]
      assert_equal 7, announcement["concurrency"]
      assert_equal "task_engine-ruby #{TaskEngine::VERSION}", announcement["client"]
      resize = { "retry" => { "maximum" => 2, "first_delay" => "90s" }, "grace" => "1s",
                 "limit" => { "max" => 2, "key" => "customer" } }
      assert_equal [
        { "class" => "greet", "retry" => { "maximum" => 5 }, "timeout" => "30s", "queue" => "mail", "priority" => 3,
          "secret" => ["card"], "rate" => "100/1s", "schema" => { "type" => "object" } },
        { "class" => "Resize", **resize },
        { "class" => "pictures.thumbnail", **resize, "in_order" => true }
      ], announcement["classes"]
    end
  end

  def test_refuses_unknown_options_and_names_near_ones
    error = assert_raises(TaskEngine::InvalidArgument) { TaskEngine.task("x", retires: 5) { nil } }
    assert_equal "task class x has no option retires; did you mean retries?", error.message
    error = assert_raises(TaskEngine::InvalidArgument) { TaskEngine.task("x", timeout: "soon") { nil } }
    assert_includes error.message, "timeout is \"soon\"; write a duration like \"30s\""
    error = assert_raises(TaskEngine::InvalidArgument) { TaskEngine.task("x") { |_ctx, _parameters| nil } }
    assert_includes error.message, "write the parameters of the task as keywords"
    error = assert_raises(TaskEngine::InvalidArgument) do
      Class.new(TaskEngine::Task) { options(retries: 1, retry: { maximum: 2 }) }
    end
    assert_includes error.message, "retries and retry are given"
  end

  def test_returns_results_and_information
    with_worker do |worker|
      value = { "text" => "ünï €\u2028", "list" => [1, 2.5, nil, true], "deep" => { "a" => "b" } }
      assert_equal({ "id" => "1.1", "result" => value }, worker.run("check.echo", { value: }))
      info = worker.run("check.info", {})["result"]
      assert_equal({ "task_id" => 2, "attempt" => 1, "retry_number" => 0, "class" => "check.info",
                     "correlation_id" => "2" }, info)
      dependencies = { "extract" => { "id" => 1, "status" => "stopped", "result" => 3 } }
      assert_equal dependencies, worker.run("check.dependencies", {}, dependencies:)["result"]
    end
  end

  def test_parameters_of_a_megabyte_arrive
    with_worker do |worker|
      text = "ü" * (512 * 1024)
      # The result is exactly as long as the limit allows.
      assert_equal text[0..-2], worker.run("check.echo", { value: text[0..-2] })["result"]
      answer = worker.run("check.echo", { value: text })
      assert_equal "ResultTooLong", answer["error"]["exception"]
      assert_includes answer["error"]["message"], "at most 1048576 are stored"
    end
  end

  def test_exceptions_become_errors
    with_worker do |worker|
      answer = worker.run("check.fail", { message: "no such account" })
      assert_equal %w[error id], answer.keys.sort
      assert_equal "RuntimeError", answer["error"]["exception"]
      assert_equal "no such account", answer["error"]["message"]
      assert_match(/check_worker\.rb:\d+/, answer["error"]["backtrace"].first)
      assert_equal false, worker.run("check.fail_for_good", { message: "m" })["retry"]
      later = worker.run("check.fail_later", { message: "m", time: "1m 30s" })
      assert_equal ["m", 90], [later["error"]["message"], later["retry"]]
      assert_equal({ "id" => "4.1", "snooze" => 30, "message" => "m" },
                   worker.run("check.snooze", { message: "m", time: "30s" }))
      assert_equal({ "id" => "5.1", "rate_limited" => 0.25, "message" => "m" },
                   worker.run("check.rate_limited", { message: "m", time: "250ms" }))
    end
  end

  def test_unusual_exceptions_fail_only_their_task
    with_code(<<~'RUBY') do |worker|
      class Marked < StandardError
        include TaskEngine::NoRetryException
      end
      class Rude < StandardError
        def message = raise("rude")
      end
      TaskEngine.task("exit") { exit 3 }
      TaskEngine.task("thread") { Thread.exit }
      TaskEngine.task("deep") { def deep = deep; deep }
      TaskEngine.task("missing") { raise NotImplementedError }
      TaskEngine.task("bytes") { raise "\xff\xfe".b }
      TaskEngine.task("marked") { raise Marked, "no" }
      TaskEngine.task("rude") { raise Rude }
      TaskEngine.task("cause") { begin; raise "inner"; rescue; raise "outer"; end }
      TaskEngine.task("exception") { raise Exception, "bare" }
      TaskEngine.task("throw") { throw :nowhere }
      TaskEngine.serve(concurrency: 1)
    RUBY
      names = %w[exit thread deep missing exception throw rude].map { |name| worker.run(name)["error"]["exception"] }
      assert_equal %w[SystemExit ThreadEnded SystemStackError NotImplementedError Exception UncaughtThrowError Rude],
                   names
      assert_equal "\uFFFD\uFFFD", worker.run("bytes")["error"]["message"]
      marked = worker.run("marked")
      assert_equal ["Marked", false], [marked["error"]["exception"], marked["retry"]]
      assert_includes worker.run("cause")["error"]["backtrace"], "caused by RuntimeError: inner"
      # The second one waits when the thread of the first one ends.
      worker.task("98.1", "thread")
      worker.task("99.1", "marked")
      assert_equal %w[98.1 99.1], [worker.read["id"], worker.read["id"]]
      assert_equal "UnknownClass", worker.run("unheard")["error"]["exception"]
    end
  end

  def test_parameters_that_do_not_fit_fail_without_retry
    with_worker do |worker|
      { {} => "task class check.fail_later misses the parameter message, time",
        { message: "m", time: "1s", tme: 3 } => "task class check.fail_later has no parameter tme; " \
                                                "did you mean time?" }.each do |parameters, message|
        answer = worker.run("check.fail_later", parameters)
        assert_equal [false, "TaskEngine::InvalidParameters", message],
                     [answer["retry"], answer["error"]["exception"], answer["error"]["message"]]
      end
      assert_includes worker.run("check.info", { a: 1 })["error"]["message"], "has no parameter a; there is none"
    end
  end

  def test_argument_error_of_the_code_is_retried
    with_code(<<~RUBY) do |worker|
      TaskEngine.task("wrong") { |_ctx, **| Integer("many") }
      TaskEngine.serve
    RUBY
      answer = worker.run("wrong", { a: 1 })
      assert_equal "ArgumentError", answer["error"]["exception"]
      refute_includes answer, "retry"
    end
  end

  def test_results_that_are_not_json_say_what_is_wrong
    with_code(<<~'RUBY') do |worker|
      TaskEngine.task("time") { { at: [Time.now] } }
      TaskEngine.task("nan") { [0.0 / 0.0] }
      TaskEngine.task("keys") { { 1 => 2 } }
      TaskEngine.task("deep") { 70.times.reduce([]) { |list, _| [list] } }
      TaskEngine.task("circle") { list = []; list << list }
      TaskEngine.task("bytes") { "\xff\xfe" }
      TaskEngine.task("symbols") { { status: :done } }
      TaskEngine.serve
    RUBY
      { "time" => "the result contains a Time, which is not JSON", "nan" => "the result contains NaN",
        "keys" => "with the key 1; use texts or symbols", "deep" => "nested deeper than 64 levels",
        "circle" => "nested deeper than 64 levels", "bytes" => "cannot be written as JSON" }.each do |name, message|
        answer = worker.run(name)
        assert_equal ["TaskEngine::NotJson", false], [answer["error"]["exception"], answer["retry"]]
        assert_includes answer["error"]["message"], message
      end
      assert_equal({ "status" => "done" }, worker.run("symbols")["result"])
    end
  end

  def test_prints_of_user_code_go_to_stderr
    with_code(<<~RUBY) do |worker|
      puts "before serve"
      TaskEngine.task("print") do
        puts "by puts"
        $stdout.write("by write\\n")
        STDOUT.syswrite("by syswrite\\n")
        system("echo by a program; cat")
        IO.for_fd(1, autoclose: false).tap { |io| io.puts("by fd 1") }.flush
        gets
      end
      TaskEngine.serve
      puts "after serve"
    RUBY
      assert_equal({ "id" => "1.1", "result" => nil }, worker.run("print"))
      rest, status, printed = worker.close
      assert_empty rest
      assert_predicate status, :success?
      assert_equal ["before serve", "by puts", "by write", "by syswrite", "by a program", "by fd 1", "after serve"],
                   printed.lines(chomp: true)
    end
  end

  def test_many_log_lines_are_joined
    with_worker do |worker|
      worker.task("1.1", "check.log", { lines: 10_000 })
      lines, messages = [], 0
      while (line = worker.read) && !line.key?("result")
        messages += 1
        lines.concat(line["log"])
      end
      assert_equal((1..10_000).map { |nth| "line #{nth}" }, lines)
      assert_operator messages, :<, 2_000
    end
  end

  def test_log_lines_are_split_and_cut
    with_code(<<~'RUBY') do |worker|
      TaskEngine.task("log") do |ctx|
        ctx.log("one\ntwo\n", :three)
        ctx.log("\u0001" * 20_000, "\xff")
        200.times { ctx.log("x" * 9000) }
        ctx.progress(40, "half\n")
        nil
      end
      TaskEngine.serve
    RUBY
      worker.task("1.1", "log")
      lines = []
      while (line = worker.read) && !line.key?("progress")
        assert_operator JSON.generate(line).bytesize, :<, 64 * 1024
        lines.concat(line["log"])
      end
      assert_equal({ "id" => "1.1", "progress" => 40, "message" => "half\n" }, line)
      assert_equal %w[one two three], lines.first(3)
      assert_equal "\uFFFD", lines[4]
      assert_equal 205, lines.length
      assert_operator lines[3].bytesize, :<=, (8 * 1024) + 3
      assert_nil worker.read["result"]
    end
  end

  def test_unknown_lines_and_fields_are_ignored
    with_worker do |worker|
      worker.send_line({ news: "x" })
      worker.send_line({ id: "9.9", step: "a", run: true })
      worker.send_line("[1]\n")
      worker.send_line({ cancel: "9.9" })
      assert_equal "a", worker.run("check.echo", { value: "a" }, weather: "fine")["result"]
      worker.task("5.1", "check.wait", { timeout: "7d" })
      assert_equal 604_800, worker.read["timeout"]
      worker.send_line({ id: "5.1", later: "version" })
      worker.send_line({ id: "5.1", wait: "approved", signal: { by: "ada" }, weather: "fine" })
      assert_equal({ "by" => "ada" }, worker.read["result"])
    end
  end

  def test_tasks_run_side_by_side
    with_worker do |worker|
      (11..13).each { |nth| worker.task("#{nth}.1", "check.wait_for_cancel") }
      assert_equal "a", worker.run("check.echo", { value: "a" })["result"]
      %w[13.1 11.1 12.1].each do |id|
        worker.send_line({ cancel: id })
        assert_equal({ "id" => id, "result" => "cancelled" }, worker.read)
      end
    end
  end

  def test_end_of_input_finishes_running_tasks
    with_code(<<~RUBY) do |worker|
      started = Queue.new
      TaskEngine.task("slow") { started << 1; sleep 0.2; "done" }
      TaskEngine.task("wait") { |ctx| ctx.wait_for("never", timeout: "1d") }
      TaskEngine.task("started") { 2.times { started.pop } }
      TaskEngine.serve(concurrency: 4)
    RUBY
      worker.task("1.1", "slow")
      worker.task("2.1", "slow")
      worker.task("3.1", "wait")
      worker.task("4.1", "started")
      assert_equal %w[3.1 4.1], [worker.read["id"], worker.read["id"]].sort
      rest, status, = worker.close
      assert_predicate status, :success?
      answers = rest.to_h { |line| [line["id"], line["result"] || line["error"]["exception"]] }
      assert_equal({ "1.1" => "done", "2.1" => "done", "3.1" => "TaskEngine::Cancelled" }, answers)
    end
  end

  def test_dead_engine_ends_the_worker
    with_worker do |worker|
      worker.task("1.1", "check.log", { lines: 100_000 })
      worker.task("2.1", "check.wait_for_cancel")
      # Its task is cancelled, although its input stays open.
      assert_predicate worker.lose, :success?
    end
  end

  def test_exit_ends_the_process
    with_worker do |worker|
      worker.task("1.1", "check.exit", { code: 3 })
      rest, status, = worker.close
      assert_empty rest
      assert_equal 3, status.exitstatus
    end
  end

  def test_twenty_thousand_tasks
    with_worker do |worker|
      writer = Thread.new do
        20_000.times { |nth| worker.task("#{nth}.1", "check.echo", { value: nth }) }
      end
      answers = Array.new(20_000) { worker.read }
      writer.join
      assert_equal((0...20_000).to_a, answers.map { |answer| answer["result"] }.sort)
      assert(answers.all? { |answer| answer["id"] == "#{answer["result"]}.1" })
    end
  end
end
