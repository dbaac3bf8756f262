# frozen_string_literal: true

module TaskEngine
  module Worker
    # A worker that an engine has started: lines on the standard input and output.
    module Stdio
      module_function

      def run(definitions, concurrency)
        warn "This is a worker; task-engine start runs it. Press Ctrl-D to end it." if $stdin.tty?
        input, output = take_streams
        session = Session.new(input, output, definitions, concurrency)
        session.push(Session.announcement(definitions, concurrency))
        session.read
        session.finish
      end

      # Takes the protocol's streams away from user code: what it prints goes to the standard error,
      # and programs that it starts read nothing.
      # rubocop:disable Style/GlobalStdStream -- the streams of the process, whatever $stdout is
      def take_streams
        # Another object for fd 1: what STDOUT has buffered must not go to the engine.
        stdout = IO.for_fd(1, "w", autoclose: false)
        output = stdout.dup
        stdout.reopen(STDERR)
        STDOUT.sync = true
        input = STDIN.dup
        STDIN.reopen(File::NULL)
        input.set_encoding(Encoding::UTF_8)
        output.sync = true
        [input, output.binmode]
      end
      # rubocop:enable Style/GlobalStdStream
      private_class_method :take_streams
    end
  end
end
