# frozen_string_literal: true

require "sidekiq"

Sidekiq.configure_server { |config| config.redis = { url: ENV.fetch("REDIS_URL") } }
Sidekiq.configure_client { |config| config.redis = { url: ENV.fetch("REDIS_URL") } }

class Noop
  include Sidekiq::Worker

  def perform; end
end
