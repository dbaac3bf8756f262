# frozen_string_literal: true

module TaskEngine
  module Worker
    # Threads that work off a queue. They are started when they are needed.
    class Pool
      def initialize(size, &work)
        @size = size
        @work = work
        @queue = Queue.new
        @mutex = Mutex.new
        @threads = []
      end

      def push(item)
        @queue.push(item)
        start if @threads.size < @size && @queue.length > @queue.num_waiting
      end

      # Returns when all is done.
      def finish
        @queue.close
        while (thread = @mutex.synchronize { @threads.first })
          thread.join
        end
      end

      # Takes no more from the queue.
      def abandon
        @queue.clear
        @queue.close
      end

      private

      def start
        @mutex.synchronize do
          # Registered before it can end.
          @threads << Thread.new { run }
        end
      end

      def run
        Thread.current.report_on_exception = false
        while (item = @queue.pop)
          @work.call(item)
        end
      ensure
        # User code may end its thread.
        @mutex.synchronize { @threads.delete(Thread.current) }
        start unless @queue.empty?
      end
    end
  end
end
