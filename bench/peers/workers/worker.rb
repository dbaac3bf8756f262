# frozen_string_literal: true

require "task_engine"

TaskEngine.task("noop") { |_ctx| nil }

TaskEngine.serve(concurrency: Integer(ENV.fetch("CONCURRENCY")))
