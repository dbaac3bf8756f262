# frozen_string_literal: true

require "openssl"

# The client of Task Engine: creates background tasks, and executes them.
module TaskEngine
end

require_relative "task_engine/version"
require_relative "task_engine/errors"
require_relative "task_engine/checks"
require_relative "task_engine/duration"
require_relative "task_engine/json"
require_relative "task_engine/retry_rule"
require_relative "task_engine/signature"
require_relative "task_engine/definition"
require_relative "task_engine/registry"
require_relative "task_engine/task"
require_relative "task_engine/new_task"
require_relative "task_engine/new_flow"
require_relative "task_engine/database"
require_relative "task_engine/http_store"
require_relative "task_engine/http_client"
require_relative "task_engine/creation"
require_relative "task_engine/durable"
require_relative "task_engine/context"
require_relative "task_engine/failure"
require_relative "task_engine/worker/writer"
require_relative "task_engine/worker/pool"
require_relative "task_engine/worker/session"
require_relative "task_engine/worker/stdio"
require_relative "task_engine/worker/connection"
require_relative "task_engine/worker/remote"
require_relative "task_engine/serve"
