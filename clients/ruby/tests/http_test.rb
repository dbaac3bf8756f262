# frozen_string_literal: true

require_relative "helper"
require "socket"

# Creation over HTTP, with a real server on SQLite.
class HttpTest < Minitest::Test
  include Helper

  class Resize < TaskEngine::Task
    def perform(width:); end
  end

  def with_server
    with_site do |site|
      site.run!("migrate")
      token = site.run!("--quiet", "tokens", "create", "shop", "--role", "operator").split.last
      port = TCPServer.open("127.0.0.1", 0) { |server| server.addr[1] }
      site.start("127.0.0.1:#{port}", "--web-role", "none", command: "web")
      url = "http://127.0.0.1:#{port}"
      site.until { Net::HTTP.get_response(URI("#{url}/livez")).is_a?(Net::HTTPSuccess) rescue nil } # rubocop:disable Style/RescueModifier
      yield site, TaskEngine::HttpClient.new(url, token:), url
    end
  end

  def test_creates_tasks_flows_and_signals
    with_server do |site, client, url|
      all = { after: "10m", queue: "q", priority: 3, correlation_id: "order-1", retries: 2,
              traceparent: "00-#{"a" * 32}-#{"b" * 16}-01" }
      id = client.create("resize", { text: "ünï" }, idempotency_key: "picture 7", **all)
      assert_equal id, client.create("resize", { text: "ünï" }, idempotency_key: "picture 7", **all)
      shown = JSON.parse(site.run!("show", id.to_s, "--json"))
      assert_equal [{ "text" => "ünï" }, "q", 3, "order-1"],
                   shown.values_at("parameters", "queue", "priority", "correlation_id")
      error = assert_raises(TaskEngine::HttpError) { client.create("resize", idempotency_key: "picture 7") }
      assert_equal 422, error.code

      creation = client.create("index", {}, unique: "customer 7", scope: "1 day", on_conflict: :keep)
      assert_predicate creation, :created?
      assert_predicate client.create("index", {}, unique: "customer 7"), :kept?
      ids = TaskEngine.create_many(client, [{ class: "a" }, { class: "b", unique: "k" }, { class: Resize,
                                                                                           parameters: { width: 1 } }])
      assert_equal [Integer, TaskEngine::Creation, Integer], ids.map(&:class)
      assert_kind_of Integer, Resize.create(client.idempotent("resize 1"), width: 80)

      flow = client.create_flow({ extract: { class: "extract" }, load: { class: "load", after: :extract, delay: 5 } },
                                name: "nightly", idempotency_key: "flow 1")
      assert_equal %w[extract load], flow.keys.sort
      last = client.create("report", {}, after_task: flow["load"])
      shown = JSON.parse(site.run!("show", last.to_s, "--json"))
      assert_equal [flow["load"]], (shown["dependencies"].map { |one| one["id"] || one["task_id"] })

      assert_equal :kept, client.signal(id, "approved by/ada?", { by: "ada" })
      assert_equal :duplicate, client.signal(id, "approved by/ada?")
      assert_equal :kept, client.signal_unique("index", "customer 7", "paid", [1])

      refuses_what_is_wrong(client, url)
    end
  end

  private

  def refuses_what_is_wrong(client, url)
    error = assert_raises(TaskEngine::HttpError) { client.create("resize", {}, limits: { api: "acme" }) }
    assert_equal 400, error.code
    assert_match(/api/, error.message)
    error = assert_raises(TaskEngine::HttpError) { TaskEngine::HttpClient.new(url, token: "wrong").create("a") }
    assert_equal 401, error.code
    error = assert_raises(TaskEngine::HttpError) { TaskEngine::HttpClient.new("#{url}/elsewhere").create("a") }
    assert_includes [401, 404], error.code
    error = assert_raises(TaskEngine::InvalidArgument) { client.create_many([{ class: "a" }] * 1001) }
    assert_includes error.message, "at most 1000 tasks, not 1001"
  end

  public

  def test_unreachable_servers_are_http_errors
    port = TCPServer.open("127.0.0.1", 0) { |server| server.addr[1] }
    client = TaskEngine::HttpClient.new("http://127.0.0.1:#{port}", token: "secret")
    error = assert_raises(TaskEngine::HttpError) { client.create("a") }
    assert_nil error.code
    assert_includes error.message, "POST http://127.0.0.1:#{port}/api/v1/tasks: "
    refute_includes client.inspect, "secret"
    assert_raises(TaskEngine::InvalidArgument) { TaskEngine::HttpClient.new("localhost:8642") }
    assert_raises(TaskEngine::InvalidArgument) { client.idempotent("") }
  end
end
