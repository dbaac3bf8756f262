# frozen_string_literal: true

require_relative "helper"

# Workers under a real engine, on SQLite.
class EngineTest < Minitest::Test
  include Helper

  WORKER = <<~'RUBY'
    require "task_engine"

    def note(text) = File.write("effects.txt", "#{text}\n", mode: "a")

    TaskEngine.task("greet") do |ctx, name:|
      ctx.log("hello #{name}")
      ctx.progress(50, "half")
      puts "printed"
      { length: ctx.step("count") { name.length } }
    end

    class Resize < TaskEngine::Task
      options retry: { maximum: 1, first_delay: "10ms" }, timeout: "60s", queue: "pictures"

      def perform(width:)
        raise ArgumentError, "too wide" if width > 100

        width * 2
      end
    end

    # Each attempt before the last is killed in its second step.
    TaskEngine.task("order", retry: { maximum: 10, first_delay: "10ms" }) do |ctx, item:|
      ctx.step("reserve") { note("reserve #{item}") }
      ctx.step("charge") do
        note("charging in attempt #{ctx.attempt} by #{Process.pid}")
        sleep if ctx.attempt == 1
        note("charge")
      end
      begin
        approval = ctx.wait_for("approved", timeout: "1h")
      rescue => error
        note("caught #{error.class}")
      ensure
        note("attempt #{ctx.attempt} ends its wait")
      end
      ctx.sleep("cooling off", "10ms")
      sizes = ctx.call_all([10, 200].map { |width| { class: Resize, parameters: { width: width } } })
      [approval, sizes.map { |size| size.succeeded? ? size.result : size.error_message }]
    end

    TaskEngine.task("load") { |ctx| ctx.result_of("extract") + 1 }
    TaskEngine.task("extract") { 41 }
    TaskEngine.task("cancelled") do |ctx|
      note("cancelled runs")
      ctx.wait_for_cancel
      ctx.log("not logged")
    end
    TaskEngine.task("slow") { |_ctx| note("slow runs"); sleep 0.5; "finished" }

    TaskEngine.serve
  RUBY

  def with_engine
    with_site do |site|
      site.write("worker.rb", WORKER)
      site.configure("worker.rb")
      site.run!("migrate")
      yield site, site.start
    end
  end

  def effects(site)
    path = File.join(site.folder, "effects.txt")
    File.exist?(path) ? File.readlines(path, chomp: true) : []
  end

  # task-engine.toml has only the command: the worker announces the rest.
  def test_tasks_run
    with_engine do |site,|
      id = site.create("greet", { name: "Ada" })
      assert_equal ["stopped", { "length" => 3 }], site.wait(id).values_at("status", "result")
      logs = site.run!("logs", id.to_s)
      assert_includes logs, "hello Ada"
      failed = site.wait(site.create("Resize", { width: 200 }, "--queue", "pictures"))
      assert_equal "failed", failed["status"]
      assert_equal ["ArgumentError", "too wide"], failed["error"].values_at("exception", "message")
      misfit = site.wait(site.create("greet", { nam: "Ada" }))
      assert_equal "task class greet misses the parameter name", misfit["error"]["message"]
      assert_equal 100, site.wait(site.create("Resize", { width: 50 }, "--queue", "pictures"))["result"]

      flow = site.write("flow.json", JSON.generate({ tasks: { extract: { class: "extract" },
                                                              load: { class: "load", after: "extract" } } }))
      assert_operator flow, :>, 0
      site.run!("flow", "run", "flow.json", "--wait")
      assert_equal 42, site.wait(site.create("greet", { name: "x" }) - 1)["result"]
    end
  end

  def test_durable_task_survives_kills_of_worker_and_engine
    with_engine do |site, engine|
      id = site.create("order", { item: "book" })
      line = site.until { effects(site).find { |effect| effect.start_with?("charging in attempt 1") } }
      Process.kill("KILL", line.split.last.to_i)
      site.until { effects(site).any? { |effect| effect.end_with?("ends its wait") } }
      site.signal(engine, "KILL")
      site.start
      site.run!("signal", id.to_s, "approved", "{\"by\": \"ada\"}")
      # The two children are in the queue of their class.
      done = site.wait(id)
      assert_equal ["stopped", [{ "by" => "ada" }, [20, "too wide"]]], done.values_at("status", "result")
      seen = effects(site)
      assert_equal 1, seen.count("reserve book")
      assert_equal 1, seen.count("charge")
      assert_equal(2, seen.count { |effect| effect.start_with?("charging") })
      refute(seen.any? { |effect| effect.start_with?("caught") })
    end
  end

  def test_cancelled_task_ends
    with_engine do |site,|
      id = site.create("cancelled")
      site.until { effects(site).include?("cancelled runs") }
      site.run!("cancel", id.to_s, "--yes")
      assert_equal "cancelled", site.wait(id)["status"]
      refute_includes site.run!("logs", id.to_s), "not logged"
    end
  end

  def test_stopped_engine_lets_the_task_finish
    with_engine do |site, engine|
      id = site.create("slow")
      site.until { effects(site).include?("slow runs") }
      assert_equal 0, site.signal(engine, "TERM").exitstatus
      assert_equal "finished", site.wait(id)["result"]
    end
  end

  def test_all_checks_pass
    output, code = Open3.capture2e(BINARY, "check", "--worker", "ruby #{CHECK_WORKER}")
    assert_equal 0, code.exitstatus, output
  end
end
