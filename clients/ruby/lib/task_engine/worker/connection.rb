# frozen_string_literal: true

require "openssl"
require "socket"
require "timeout"
require "uri"

module TaskEngine
  module Worker
    # The address of an engine: tcp://HOST:PORT, tls://HOST:PORT or unix:PATH.
    class Address
      CONNECT_SECONDS = 10
      # A lost machine is noticed after about 25 seconds.
      KEEPALIVE = { TCP_KEEPIDLE: 10, TCP_KEEPINTVL: 5, TCP_KEEPCNT: 3 }.freeze

      def initialize(text, certificate_authority: nil)
        @text = text.to_s
        @certificate_authority = certificate_authority
        @scheme, rest = @text.split(":", 2)
        case @scheme
        when "unix" then @path = rest.to_s.delete_prefix("//")
        when "tcp", "tls" then parse_host
        end
        (@path && !@path.empty?) || @port or raise URI::InvalidURIError
      rescue URI::InvalidURIError
        Checks.invalid("the address of the engine is #{text.inspect}; " \
                       "write tcp://HOST:PORT, tls://HOST:PORT or unix:PATH")
      end

      def to_s
        @text
      end

      def open
        return UNIXSocket.new(@path) if @path

        socket = Socket.tcp(@host, @port, connect_timeout: CONNECT_SECONDS)
        keep_alive(socket)
        @scheme == "tls" ? secure(socket) : socket
      rescue StandardError
        socket&.close
        raise
      end

      private

      def parse_host
        uri = URI.parse(@text)
        @host, @port = uri.hostname, uri.port
        @port = nil if @host.nil? || @host.empty?
      end

      def keep_alive(socket)
        socket.setsockopt(Socket::IPPROTO_TCP, Socket::TCP_NODELAY, 1)
        socket.setsockopt(Socket::SOL_SOCKET, Socket::SO_KEEPALIVE, 1)
        KEEPALIVE.each do |name, value|
          socket.setsockopt(Socket::IPPROTO_TCP, Socket.const_get(name), value) if Socket.const_defined?(name)
        end
      end

      def secure(socket)
        context = OpenSSL::SSL::SSLContext.new
        context.set_params(verify_mode: OpenSSL::SSL::VERIFY_PEER)
        context.ca_file = @certificate_authority if @certificate_authority
        ssl = OpenSSL::SSL::SSLSocket.new(socket, context)
        ssl.sync_close = true
        ssl.hostname = @host
        Timeout.timeout(CONNECT_SECONDS) { ssl.connect }
        ssl.post_connection_check(@host)
        ssl
      end
    end
  end
end
