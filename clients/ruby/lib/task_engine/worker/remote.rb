# frozen_string_literal: true

module TaskEngine
  module Worker
    # A worker that connects to an engine, and connects again when the connection is lost.
    class Remote
      PAUSES = [1, 2, 4, 8, 16, 30].freeze
      ANSWER_SECONDS = 30
      STOPPING = "{\"stopping\":true}\n"
      NETWORK_ERRORS = [SystemCallError, SocketError, IOError, OpenSSL::SSL::SSLError, Timeout::Error].freeze

      def initialize(address, definitions, concurrency, name:, token:)
        @address = address
        @definitions = definitions
        @concurrency = concurrency
        @announcement = Session.announcement(definitions, concurrency, **{ name:, token: }.compact)
        @mutex = Mutex.new
        @stopped = ConditionVariable.new
        @is_stopping = false
        @failures = 0
      end

      # Returns after SIGTERM or SIGINT.
      def run
        with_signals do
          until @is_stopping
            connect
            pause unless @is_stopping
          end
        end
      end

      # Takes no more tasks, and finishes those that it has.
      def stop
        @mutex.synchronize do
          @is_stopping = true
          # The thread that waits for an answer to the announcement notices that it is closed.
          @session ? @session.push(STOPPING) : close(@socket)
          @stopped.broadcast
        end
      end

      private

      def connect
        socket = @address.open
        @mutex.synchronize { @socket = socket }
        close(socket) if @is_stopping
        announce(socket)
        @failures = 0
        work(socket)
      rescue *NETWORK_ERRORS => error
        report("cannot connect to #{@address}: #{error.message}") unless @is_stopping
      ensure
        close(socket)
        @mutex.synchronize { @socket = nil }
      end

      def announce(socket)
        socket.write(@announcement)
        line = Timeout.timeout(ANSWER_SECONDS) { socket.gets("\n") } or raise EOFError, "it closed the connection"
        answer = JSON.parse(line)
        answer.is_a?(Hash) or raise JSON::ParserError
        check_refusal(answer)

        answer["connected"] or raise IOError, "it does not answer as an engine"
        report("connected to #{@address} as #{answer["connected"]}")
      rescue JSON::ParserError
        raise IOError, "it does not answer as an engine"
      end

      # Some refusals pass: an engine without its database, for example.
      def check_refusal(answer)
        reason = answer["refused"] or return
        message = "the engine at #{@address} refused this worker: #{reason}"
        raise answer["again"] ? IOError : Refused, message
      end

      def work(socket)
        session = Session.new(socket, socket, @definitions, @concurrency)
        @mutex.synchronize do
          @session = session
          session.push(STOPPING) if @is_stopping
        end
        session.read
        @mutex.synchronize { @session = nil }
        # First, because the writer may wait for an engine that does not read.
        close(socket)
        session.lose
        report("the connection to #{@address} was closed") unless @is_stopping
      end

      def pause
        seconds = PAUSES[[@failures, PAUSES.length - 1].min]
        @failures += 1
        report("connecting again in #{seconds} s")
        @mutex.synchronize { @stopped.wait(@mutex, seconds) unless @is_stopping }
      end

      def close(socket)
        socket&.close
      rescue *NETWORK_ERRORS
        nil
      end

      # A trap may not lock, so a thread does.
      def with_signals
        signals = Queue.new
        before = %w[TERM INT].to_h { |name| [name, trap(name) { signals << name }] }
        thread = Thread.new { signals.pop && stop_by_signal(before) }
        yield
      ensure
        thread&.kill
        before&.each { |name, handler| trap(name, handler || "DEFAULT") }
      end

      # The second signal ends the program.
      def stop_by_signal(before)
        report("stopping: finishing the running tasks")
        before.each_key { |name| trap(name, "DEFAULT") }
        stop
      end

      def report(message)
        warn "task_engine: #{message}"
      end
    end
  end
end
