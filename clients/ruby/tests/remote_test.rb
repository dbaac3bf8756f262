# frozen_string_literal: true

require_relative "helper"
require "openssl"
require "socket"

# Workers that connect: to an engine that the test plays, and to a real one.
class RemoteTest < Minitest::Test
  include Helper

  WORKER = <<~RUBY
    require "task_engine"
    TaskEngine.task("echo") { |_ctx, value:| value }
    TaskEngine.task("slow") { |ctx| ctx.log("begun"); sleep 0.3; "finished" }
    TaskEngine.task("waits") do |ctx|
      ctx.log("begun")
      ctx.wait_for_cancel
      File.write("cancelled.txt", "")
      "too late"
    end
    TaskEngine.serve(concurrency: 3, name: "resizer")
  RUBY

  # The engine's side of a connection.
  class Peer
    def initialize(socket)
      @socket = socket
    end

    def read
      line = Timeout.timeout(Helper::LIMIT) { @socket.gets }
      line && JSON.parse(line)
    end

    def send_line(line)
      @socket.write("#{JSON.generate(line)}\n")
    end

    def task(id, task_class, parameters = {})
      send_line({ id:, task_id: id.to_i, attempt: 1, retry_number: 0, class: task_class, correlation_id: "1",
                  parameters: })
    end

    def close
      @socket.close
    end

    # Reads the announcement, and answers it.
    def answer
      read.tap { send_line({ connected: "resizer" }) }
    end
  end

  def with_remote(connect, **variables)
    Dir.mktmpdir do |folder|
      File.write("#{folder}/worker.rb", WORKER)
      variables = { "TASK_ENGINE_CONNECT" => connect, "TASK_ENGINE_LISTEN_TOKEN" => nil, **variables }
      log = "#{folder}/log"
      pid = Process.spawn(variables, "ruby", "-I#{LIB}", "worker.rb", chdir: folder, %i[out err] => log)
      begin
        yield folder, pid, -> { File.read(log) }
      ensure
        Process.kill("KILL", pid) rescue nil # rubocop:disable Style/RescueModifier
        Process.wait(pid) rescue nil # rubocop:disable Style/RescueModifier
      end
    end
  end

  def accept(server)
    Peer.new(Timeout.timeout(LIMIT) { server.accept })
  end

  def exit_status(pid)
    Timeout.timeout(LIMIT) { Process.wait2(pid) }.last
  end

  def test_connects_and_stops
    TCPServer.open("127.0.0.1", 0) do |server|
      with_remote("tcp://127.0.0.1:#{server.addr[1]}", "TASK_ENGINE_LISTEN_TOKEN" => "secret") do |_, pid, log|
        peer = accept(server)
        announcement = peer.answer
        assert_equal ["resizer", "secret", 3, %w[echo slow waits]],
                     [*announcement.values_at("name", "token", "concurrency"),
                      announcement["classes"].map { |one| one["class"] }]
        peer.task("1.1", "echo", { value: "ünï" })
        assert_equal({ "id" => "1.1", "result" => "ünï" }, peer.read)
        peer.task("2.1", "slow")
        assert_equal ["begun"], peer.read["log"]
        Process.kill("TERM", pid)
        assert_equal({ "stopping" => true }, peer.read)
        assert_equal({ "id" => "2.1", "result" => "finished" }, peer.read)
        peer.close
        assert_equal 0, exit_status(pid).exitstatus
        refute_includes log.call, "secret"
      end
    end
  end

  def test_lost_connection_cancels_tasks_and_connects_again
    TCPServer.open("127.0.0.1", 0) do |server|
      with_remote("tcp://127.0.0.1:#{server.addr[1]}") do |folder, pid, log|
        peer = accept(server)
        refute_includes peer.answer, "token"
        3.times { |nth| peer.task("#{nth}.1", "waits") }
        3.times { peer.read }
        peer.close
        again = accept(server)
        again.answer
        assert_path_exists "#{folder}/cancelled.txt"
        # All of its threads are free again, and nothing of the lost tasks is sent.
        again.task("4.1", "echo", { value: 1 })
        assert_equal({ "id" => "4.1", "result" => 1 }, again.read)
        again.close
        Process.kill("INT", pid)
        assert_equal 0, exit_status(pid).exitstatus
        assert_includes log.call, "connecting again in 1 s"
      end
    end
  end

  def test_refused_worker_ends
    TCPServer.open("127.0.0.1", 0) do |server|
      with_remote("tcp://127.0.0.1:#{server.addr[1]}") do |_, pid, log|
        peer = accept(server)
        peer.read
        peer.send_line({ refused: "the token is missing or wrong" })
        assert_equal 1, exit_status(pid).exitstatus
        assert_equal ["task_engine: the engine at tcp://127.0.0.1:#{server.addr[1]} refused this worker: " \
                      "the token is missing or wrong"], log.call.lines(chomp: true)
      end
    end
  end

  def test_temporary_refusal_is_tried_again
    TCPServer.open("127.0.0.1", 0) do |server|
      with_remote("tcp://127.0.0.1:#{server.addr[1]}") do |_, pid, log|
        peer = accept(server)
        peer.read
        peer.send_line({ refused: "no database", again: true })
        accept(server).answer
        Process.kill("KILL", pid)
        assert_includes log.call, "refused this worker: no database"
      end
    end
  end

  def test_waits_for_an_engine_that_is_not_up
    Dir.mktmpdir do |sockets|
      with_remote("unix:#{sockets}/engine") do |_, pid, log|
        Timeout.timeout(LIMIT) { sleep 0.02 until log.call.include?("connecting again in 1 s") }
        UNIXServer.open("#{sockets}/engine") { |server| accept(server).tap(&:answer).close }
        Timeout.timeout(LIMIT) { sleep 0.02 until log.call.include?("connected to unix:") }
        Timeout.timeout(LIMIT) { sleep 0.02 until log.call.scan("connecting again in 1 s").length == 2 }
        Process.kill("TERM", pid)
        assert_equal 0, exit_status(pid).exitstatus
      end
    end
  end

  def test_tls_checks_the_certificate
    key, certificate = certificate_for("127.0.0.1")
    Dir.mktmpdir do |folder|
      File.write("#{folder}/ca.pem", certificate.to_pem)
      context = OpenSSL::SSL::SSLContext.new
      context.cert, context.key = certificate, key
      TCPServer.open("127.0.0.1", 0) do |tcp|
        server = OpenSSL::SSL::SSLServer.new(tcp, context)
        url = "tls://127.0.0.1:#{tcp.addr[1]}"
        with_remote(url, "TASK_ENGINE_CONNECT_CA" => "#{folder}/ca.pem") do
          peer = accept(server)
          peer.answer
          peer.task("1.1", "echo", { value: "x" * 100_000 })
          assert_equal "x" * 100_000, peer.read["result"]
        end
        with_remote(url) do |_, _, log|
          assert_raises(OpenSSL::SSL::SSLError) { accept(server) }
          Timeout.timeout(LIMIT) { sleep 0.02 until log.call.include?("certificate verify failed") }
        end
      end
    end
  end

  def test_addresses_are_checked
    ["localhost:8643", "http://localhost:1", "tcp://", "tcp://host", "unix:", "tls://:1"].each do |address|
      error = assert_raises(TaskEngine::InvalidArgument, address) { TaskEngine::Worker::Address.new(address) }
      assert_includes error.message, "write tcp://HOST:PORT, tls://HOST:PORT or unix:PATH"
    end
  end

  def test_real_engine
    with_site do |site|
      site.run!("migrate")
      port = TCPServer.open("127.0.0.1", 0) { |server| server.addr[1] }
      secret = "a long enough secret token"
      engine = site.start("--listen", "127.0.0.1:#{port}", TASK_ENGINE_LISTEN_TOKEN: secret)
      with_remote("tcp://127.0.0.1:#{port}", "TASK_ENGINE_LISTEN_TOKEN" => secret) do |_, pid, log|
        id = site.create("echo", { value: [1] })
        assert_equal [1], site.wait(id)["result"]
        site.signal(engine, "KILL")
        Timeout.timeout(LIMIT) { sleep 0.02 until log.call.include?("connecting again") }
        site.start("--listen", "127.0.0.1:#{port}", TASK_ENGINE_LISTEN_TOKEN: secret)
        assert_equal 2, site.wait(site.create("echo", { value: 2 }))["result"]
        Process.kill("TERM", pid)
        assert_equal 0, exit_status(pid).exitstatus, log.call
      end
      with_remote("tcp://127.0.0.1:#{port}", "TASK_ENGINE_LISTEN_TOKEN" => "another") do |_, pid, log|
        assert_equal 1, exit_status(pid).exitstatus
        assert_includes log.call, "refused this worker"
      end
    end
  end

  private

  def certificate_for(address)
    key = OpenSSL::PKey::EC.generate("prime256v1")
    certificate = OpenSSL::X509::Certificate.new
    certificate.version, certificate.serial = 2, 1
    certificate.subject = certificate.issuer = OpenSSL::X509::Name.parse("/CN=test")
    certificate.public_key = key
    certificate.not_before, certificate.not_after = Time.now - 60, Time.now + 3600
    extensions = OpenSSL::X509::ExtensionFactory.new(certificate, certificate)
    certificate.add_extension(extensions.create_extension("basicConstraints", "CA:TRUE", true))
    certificate.add_extension(extensions.create_extension("subjectAltName", "IP:#{address}"))
    certificate.sign(key, "SHA256")
    [key, certificate]
  end
end
