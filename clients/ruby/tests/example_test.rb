# frozen_string_literal: true

require_relative "helper"
require "pg"

# Runs examples/ruby on PostgreSQL.
class ExampleTest < Minitest::Test
  include Helper

  FOLDER = File.expand_path("../../../examples/ruby", __dir__)
  URL = ENV.fetch("TASK_ENGINE_TEST_DATABASE_URL") { abort "set TASK_ENGINE_TEST_DATABASE_URL to a migrated database" }

  def test_orders_are_confirmed
    db = PG.connect(URL)
    db.exec("DROP TABLE IF EXISTS orders, stock")
    site = Site.new(FOLDER, database: URL)
    log = Dir.mktmpdir
    shop("setup")
    book, lamp, second = [%w[book ada@example.com], %w[lamp bob@busy.example], %w[lamp nobody]].map do |arguments|
      Integer(shop("order", *arguments))
    end
    before = [count(db, "orders"), count(db, "task_engine.created_tasks")]
    assert_includes shop("order", "piano", "ada@example.com", status: 1), "nothing was stored"
    assert_equal before, [count(db, "orders"), count(db, "task_engine.created_tasks")]

    site.start(log: "#{log}/log", DATABASE_URL: URL)
    # An attempt that starts too late for its rate on a busy machine is released.
    assert_match(/\Asent to ada@example.com in attempt \d+\z/, site.wait(book)["result"])
    # One lamp, two orders: whichever comes first.
    lamps = [site.wait(lamp), site.wait(second)]
    assert_equal %w[failed stopped], lamps.map { |task| task["status"] }.sort
    assert_equal "lamp is sold out", lamps.find { |task| task["error"] }["error"]["message"]
    mail = lamps.first["result"] || lamps.last["result"]
    assert_match(/\Asent to bob@busy.example in attempt \d+\z|\Awithout a mail: nobody is no address\z/, mail)
    counts = db.exec_params("SELECT id FROM task_engine.created_tasks WHERE task_class = 'CountOrders' " \
                            "AND id > $1", [book]).column_values(0)
    assert_equal 1, counts.length
    assert_equal 3, site.wait(counts.first)["result"]
  ensure
    site&.finish
    FileUtils.rm_rf(log) if log
    db&.exec("DROP TABLE IF EXISTS orders, stock")
  end

  private

  def shop(*arguments, status: 0)
    output, ended = Open3.capture2e({ "DATABASE_URL" => URL }, "ruby", "-I#{LIB}", "shop.rb", *arguments, chdir: FOLDER)
    assert_equal status, ended.exitstatus, output
    output
  end

  def count(db, table)
    db.exec("SELECT count(*) FROM #{table}").getvalue(0, 0).to_i
  end
end
