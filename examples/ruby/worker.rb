# frozen_string_literal: true

# The engine starts this: see task-engine.toml.
require_relative "tasks"

TaskEngine.serve(concurrency: 5)
