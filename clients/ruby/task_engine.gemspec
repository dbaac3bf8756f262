# frozen_string_literal: true

require_relative "lib/task_engine/version"

Gem::Specification.new do |spec|
  spec.name = "task_engine"
  spec.version = TaskEngine::VERSION
  spec.authors = ["The Task Engine contributors"]
  spec.summary = "Client of Task Engine: background tasks on PostgreSQL or SQLite"
  spec.description = "Creates tasks in your own database transaction or over HTTP, and executes them as methods or " \
                     "blocks: with retries, durable steps, signals and child tasks."
  spec.licenses = ["MIT", "Apache-2.0"]
  spec.required_ruby_version = ">= 3.1"
  spec.files = Dir["lib/**/*.rb", "sig/**/*.{rbs,yaml}", "README.md", "LICENSE-*", base: __dir__]
  spec.require_paths = ["lib"]
  spec.homepage = "https://github.com/task-engine/task-engine"
  spec.metadata["source_code_uri"] = spec.homepage
  spec.metadata["rubygems_mfa_required"] = "true"
end
