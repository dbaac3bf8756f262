# frozen_string_literal: true

require "json"
require "net/http"
require "uri"

module TaskEngine
  # The requests of an HttpClient.
  class HttpStore
    TASKS_MAXIMUM = 1000
    # The connection could not be made, or was lost.
    NETWORK_ERRORS = [SystemCallError, SocketError, IOError, Timeout::Error, Net::ProtocolError,
                      Net::HTTPBadResponse, OpenSSL::SSL::SSLError].freeze

    attr_reader :url

    def initialize(url, token:, timeout:)
      @url = URI.parse(url.to_s.chomp("/"))
      (@url.is_a?(URI::HTTP) && @url.host) or raise URI::InvalidURIError
      @token = token
      @timeout = Duration.seconds(timeout, "timeout")
    rescue URI::InvalidURIError
      Checks.invalid("the url is #{url.inspect}; write one like http://localhost:8642")
    end

    def idempotent(key)
      copy = dup
      copy.instance_variable_set(:@key, key)
      copy
    end

    def create(tasks)
      tasks.length <= TASKS_MAXIMUM or
        Checks.invalid("a request creates at most #{TASKS_MAXIMUM} tasks, not #{tasks.length}; send several")
      # One is sent alone: to the idempotency key, a list of one is another request.
      body = tasks.length == 1 ? tasks.first.fields : tasks.map(&:fields)
      post("/tasks", body)["tasks"].map { |task| Creation.new(task["id"], task["outcome"].to_sym) }
    end

    def create_flow(flow)
      post("/flows", flow.fields)["tasks"]
    end

    def signal(task_id, name, payload)
      send_signal("/tasks/#{task_id}/signals/#{URI.encode_www_form_component(name).gsub("+", "%20")}", payload)
    end

    def signal_unique(task_class, key, name, payload)
      send_signal("/signals", { class: task_class, key:, name:, payload: })
    end

    private

    def send_signal(path, body)
      post(path, body)["status"].to_sym
    rescue HttpError => error
      error.outcome ? error.outcome.to_sym : raise
    end

    def post(path, body)
      uri = URI.parse("#{@url}/api/v1#{path}")
      answer = exchange(uri, request(uri, body))
      return parse(answer) if answer.is_a?(Net::HTTPSuccess)

      problem = parse(answer)
      message = problem["detail"] || problem["title"] || "#{answer.code} #{answer.message}"
      raise HttpError.new(message, code: answer.code.to_i, pointer: problem["pointer"], outcome: problem["outcome"])
    end

    def request(uri, body)
      request = Net::HTTP::Post.new(uri)
      request["Content-Type"] = "application/json"
      request["Accept"] = "application/json"
      request["User-Agent"] = "task_engine-ruby/#{VERSION}"
      request["Authorization"] = "Bearer #{@token}" if @token
      request["Idempotency-Key"] = @key if @key
      request.body = JSON.generate(body, max_nesting: 0)
      request
    end

    def exchange(uri, request)
      # No retries of its own: without an idempotency key, a request may create its tasks twice.
      Net::HTTP.start(uri.hostname, uri.port, use_ssl: uri.scheme == "https", open_timeout: @timeout,
                                              read_timeout: @timeout, write_timeout: @timeout,
                                              max_retries: 0) { |http| http.request(request) }
    rescue *NETWORK_ERRORS => error
      raise HttpError, "POST #{uri}: #{error.message}"
    end

    # A proxy may answer with something else than JSON.
    def parse(answer)
      document = JSON.parse(answer.body.to_s.dup.force_encoding(Encoding::UTF_8))
      document.is_a?(Hash) ? document : {}
    rescue JSON::ParserError
      raise HttpError.new("the answer is not JSON: #{answer.body.to_s[0, 200]}", code: answer.code.to_i) if
        answer.is_a?(Net::HTTPSuccess)

      {}
    end
  end
end
