# frozen_string_literal: true

require_relative "helper"
require "pg"
require "socket"

# Runs each snippet of README.md.
class ReadmeTest < Minitest::Test
  include Helper

  URL = ENV.fetch("TASK_ENGINE_TEST_DATABASE_URL") { abort "set TASK_ENGINE_TEST_DATABASE_URL to a migrated database" }
  TEXT = File.read(File.expand_path("../README.md", __dir__))
  # [heading, language, code]
  SNIPPETS = TEXT.scan(/^#+ (.*?)$|^```(\w+)\n(.*?)^```$/m).slice_before { |heading,| heading }.flat_map do |part|
    part.drop(1).map { |_, language, code| [part.first.first, language, code] }
  end.freeze

  def test_all_snippets_are_known
    assert_equal ["Task Engine for Ruby", "Task classes", "pg", "Sequel", "ActiveRecord", "HTTP", "More than one task",
                  "Durable tasks", "Test your tasks"],
                 SNIPPETS.select { |_, language,| language == "ruby" }.map(&:first)
    first = SNIPPETS.select { |heading,| heading == "Task Engine for Ruby" }
    assert_equal(%w[sh ruby toml sh], first.map { |_, language,| language })
  end

  def test_first_task
    written = snippet("Task Engine for Ruby", "ruby") + snippet("Task Engine for Ruby", "toml")
    assert_operator written.lines.count { |line| !line.strip.empty? && !line.start_with?("#") }, :<=, 10
    with_site do |site|
      site.write("worker.rb", snippet("Task Engine for Ruby", "ruby"))
      site.write("task-engine.toml", snippet("Task Engine for Ruby", "toml").sub('"ruby"', "\"ruby\", \"-I#{LIB}\""))
      commands = snippet("Task Engine for Ruby", "sh", 1).lines(chomp: true)
      assert_equal "task-engine start", commands.last
      output, status = Open3.capture2e({ "TASK_ENGINE_DATABASE_URL" => site.database }, "sh", "-c",
                                       commands.first.sub("task-engine", BINARY), chdir: site.folder)
      assert_predicate status, :success?, output
      site.start
      assert_equal "Hello Ada!", site.wait(1)["result"]
    end
  end

  def test_task_classes
    with_snippet_worker("Task classes") do |site|
      id = site.create("Resize", { width: 80, customer: "acme" }, "--queue", "pictures")
      assert_equal({ "width" => 80, "height" => 80 }, site.wait(id)["result"])
      failed = site.wait(site.create("Resize", { width: 10_001 }, "--queue", "pictures"))
      assert_equal "too wide", failed["error"]["message"]
    end
  end

  def test_durable_tasks
    with_snippet_worker("Durable tasks") do |site|
      id = site.create("order", { item: "book" })
      site.run!("signal", id.to_s, "approved", "{\"by\": \"ada\"}")
      assert_equal "parcel of book, approved by ada", site.wait(id)["result"]
    end
  end

  def test_creation
    db = PG.connect(URL)
    db.exec("DROP TABLE IF EXISTS orders; CREATE TABLE orders (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY)")
    %w[pg Sequel ActiveRecord].each do |heading|
      id = ruby(heading, "DATABASE_URL" => URL)
      row = db.exec_params("SELECT task_class, task_parameters FROM task_engine.created_tasks WHERE id = $1",
                           [id]).first
      assert_equal ["resize", "{\"width\": 80}"], row.values, heading
    end
    assert_equal 3, db.exec("SELECT count(*) FROM orders").getvalue(0, 0).to_i
    # Its unique key may be there from an earlier run.
    assert_match(/\A(kept|duplicate)\n(kept|duplicate)\n\z/, ruby("More than one task", "DATABASE_URL" => URL))
  ensure
    db&.exec("DROP TABLE IF EXISTS orders")
  end

  def test_http
    with_site do |site|
      site.run!("migrate")
      port = TCPServer.open("127.0.0.1", 0) { |server| server.addr[1] }
      site.start("127.0.0.1:#{port}", command: "web")
      site.until { TCPSocket.new("127.0.0.1", port).close || true rescue nil } # rubocop:disable Style/RescueModifier
      assert_equal "1\n", ruby("HTTP", "TASKS_URL" => "http://127.0.0.1:#{port}")
      assert_equal "1\n", ruby("HTTP", "TASKS_URL" => "http://127.0.0.1:#{port}")
    end
  end

  def test_test
    assert_includes ruby("Test your tasks"), "2 runs, 4 assertions, 0 failures, 0 errors"
  end

  private

  def snippet(heading, language, nth = 0)
    SNIPPETS.select { |one| one[0] == heading && one[1] == language }.fetch(nth)[2]
  end

  def with_snippet_worker(heading)
    with_site do |site|
      site.write("worker.rb", snippet(heading, "ruby"))
      site.configure("worker.rb")
      site.run!("migrate")
      site.start
      yield site
    end
  end

  # What the snippet prints.
  def ruby(heading, **variables)
    output, status = Open3.capture2e(variables.transform_keys(&:to_s), "ruby", "-I#{LIB}", "-",
                                     stdin_data: snippet(heading, "ruby"))
    assert_predicate status, :success?, output
    output
  end
end
