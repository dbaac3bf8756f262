# frozen_string_literal: true

module TaskEngine
  # Creates tasks over HTTP. It also takes the place of a connection:
  #
  #   client = TaskEngine::HttpClient.new("https://tasks.example.com", token: ENV["TOKEN"])
  #   client.create("resize", { width: 80 }, idempotency_key: "picture-7")
  #   Resize.create(client, width: 80)
  class HttpClient
    # What sends its requests.
    attr_reader :store

    def initialize(url, token: nil, timeout: 30)
      @store = HttpStore.new(url, token:, timeout:)
    end

    # The same client, with an idempotency key for all its requests: a request that is sent again
    # creates its tasks once.
    def idempotent(key)
      (key.is_a?(String) && key.match?(/\A[[:graph:]][[:print:]]*\z/)) or
        Checks.invalid("the idempotency key is #{key.inspect}; write a text like \"order-17\"")
      copy = dup
      copy.instance_variable_set(:@store, @store.idempotent(key))
      copy
    end

    def create(task_class, parameters = {}, idempotency_key: nil, **options)
      TaskEngine.create(with(idempotency_key), task_class, parameters, **options)
    end

    def create_many(tasks, idempotency_key: nil)
      TaskEngine.create_many(with(idempotency_key), tasks)
    end

    def create_flow(tasks, name: nil, correlation_id: nil, idempotency_key: nil)
      TaskEngine.create_flow(with(idempotency_key), tasks, name:, correlation_id:)
    end

    def signal(task_id, name, payload = nil)
      TaskEngine.signal(self, task_id, name, payload)
    end

    def signal_unique(task_class, key, name, payload = nil)
      TaskEngine.signal_unique(self, task_class, key, name, payload)
    end

    # Without the token.
    def inspect
      "#<#{self.class} #{@store.url}>"
    end

    private

    def with(idempotency_key)
      idempotency_key.nil? ? self : idempotent(idempotency_key)
    end
  end
end
