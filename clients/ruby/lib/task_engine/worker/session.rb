# frozen_string_literal: true

module TaskEngine
  module Worker
    # One connection with an engine: the calling thread reads, a pool of threads works, one thread
    # writes.
    class Session
      def initialize(input, output, definitions, concurrency)
        @input = input
        @definitions = definitions
        @contexts = {}
        @mutex = Mutex.new
        @writer = Writer.new(output) { interrupt("the engine is gone") }
        @pool = Pool.new(concurrency) { |context| execute(context) }
      end

      def self.announcement(definitions, concurrency, **more)
        line = { protocol: 1, client: "task_engine-ruby #{VERSION}", classes: definitions.values.map(&:announcement),
                 concurrency: }
        "#{JSON.generate(line.merge(more))}\n"
      end

      def push(line)
        @writer.push(line)
      end

      # Reads until the engine closes the connection.
      def read
        while (line = @input.gets("\n"))
          receive(line)
        end
      rescue IOError, SystemCallError, OpenSSL::SSL::SSLError
        nil
      end

      # Finishes the tasks that have been received.
      def finish
        closed = Cancelled.new("the engine has closed the connection")
        @mutex.synchronize { @contexts.values }.each { |context| context.close_requests(closed) }
        @pool.finish
        @writer.finish
      end

      # The connection was lost, so the tasks have ended, whatever their code does.
      def lose
        @pool.abandon
        interrupt("the connection to the engine was lost")
        @writer.finish
      end

      private

      def receive(line)
        message = JSON.parse(line, max_nesting: 0)
        return unless message.is_a?(Hash)

        id = message["id"]
        if message.key?("parameters") && message.key?("class")
          start(message)
        elsif message.key?("cancel")
          context(message["cancel"])&.interrupt(Cancelled.new("the task was cancelled, or its time is over"))
        elsif id
          context(id)&.receive(message)
        end
      rescue JSON::ParserError => error
        warn "task_engine: ignored a line of the engine that is not JSON: #{error.message[0, 200]}"
      end

      def start(message)
        context = Context.new(message, @writer)
        @mutex.synchronize { @contexts[context.id] = context }
        @pool.push(context)
      end

      def context(id)
        @mutex.synchronize { @contexts[id] }
      end

      def interrupt(message)
        @mutex.synchronize { @contexts.values }.each { |context| context.interrupt(Cancelled.new(message)) }
      end

      def execute(context)
        answer = Failure.named("ThreadEnded", "the code of the task has ended its thread")
        answer = answer_of(context)
      ensure
        @mutex.synchronize { @contexts.delete(context.id) }
        context.answer(answer) if answer
      end

      def answer_of(context)
        definition = @definitions[context.task_class] or
          return Failure.named("UnknownClass", "this worker has no task class #{context.task_class}")
        result = Json.generate(definition.call(context, context.parameters), "the result")
        return %("result":#{result}) if result.bytesize <= definition.result_bytes

        Failure.named("ResultTooLong", "the result has #{result.bytesize} bytes, at most #{definition.result_bytes} " \
                                       "are stored; keep the data elsewhere and return a reference")
      rescue AttemptEnded
        nil
      rescue Exception => error # rubocop:disable Lint/RescueException
        # Also exit, a syntax error in a file that is loaded, or a stack that is too deep.
        Failure.answer(error)
      end
    end
  end
end
