# frozen_string_literal: true

module TaskEngine
  module Worker
    # Writes lines, many at a time: what has been pushed while it was writing goes out together.
    class Writer
      BATCH_BYTES = 256 * 1024

      # Calls the block if the engine does not read any more.
      def initialize(output, &lost)
        @output = output
        @lost = lost
        @queue = Queue.new
        @thread = Thread.new { run }
      end

      # A line, or a context whose log waits.
      def push(item)
        @queue.push(item)
      rescue ClosedQueueError
        # The connection is gone, and so is whom the line was for.
      end

      # Returns when all is written.
      def finish
        @queue.close
        @thread.join
      end

      private

      def run
        while (item = @queue.pop)
          batch = +""
          loop do
            add(batch, item)
            break if batch.bytesize > BATCH_BYTES || @queue.empty?

            item = @queue.pop or break
          end
          @output.write(batch) unless batch.empty?
        end
      rescue IOError, SystemCallError, OpenSSL::SSL::SSLError
        @queue.close
        @queue.clear
        @lost.call
      end

      def add(batch, item)
        text = item.is_a?(String) ? item : item.take_log
        batch << text if text
      end
    end
  end
end
