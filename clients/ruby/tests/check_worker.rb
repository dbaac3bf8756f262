# frozen_string_literal: true

# The classes of `task-engine check --worker`: see docs/worker-protocol.md.
require_relative "../lib/task_engine"

TaskEngine.task("check.echo") { |_ctx, value:| value }
TaskEngine.task("check.info") do |ctx|
  { task_id: ctx.task_id, attempt: ctx.attempt, retry_number: ctx.retry_number, class: ctx.task_class,
    correlation_id: ctx.correlation_id }
end
TaskEngine.task("check.dependencies", &:dependencies)
TaskEngine.task("check.fail") { |_ctx, message:| raise message }
TaskEngine.task("check.fail_for_good") { |_ctx, message:| raise TaskEngine::NoRetry, message }
TaskEngine.task("check.fail_later") { |_ctx, message:, time:| raise TaskEngine::RetryAfter.new(time, message) }
TaskEngine.task("check.snooze") { |_ctx, message:, time:| raise TaskEngine::Snooze.new(time, message) }
TaskEngine.task("check.rate_limited") { |_ctx, message:, time:| raise TaskEngine::RateLimited.new(time, message) }
TaskEngine.task("check.log") { |ctx, lines:| lines.times { |nth| ctx.log("line #{nth + 1}") } }
TaskEngine.task("check.print") { |_ctx, text:| puts text }
TaskEngine.task("check.progress") { |ctx, percent:, message:| ctx.progress(percent, message) }
TaskEngine.task("check.wait_for_cancel") do |ctx|
  ctx.wait_for_cancel
  "cancelled"
end
TaskEngine.task("check.step") { |ctx, values:| values.map { |value| ctx.step("value") { value } } }
TaskEngine.task("check.sleep") do |ctx, time:|
  begin
    ctx.sleep("pause", time)
  rescue => error # rubocop:disable Style/RescueStandardError -- what the check is about
    warn error
  end
  "awake"
end
TaskEngine.task("check.wait") do |ctx, timeout:|
  ctx.wait_for("approved", timeout:)
rescue TaskEngine::WaitTimedOut
  "timed out"
end
TaskEngine.task("check.call") do |ctx, parameters:, **rest|
  ctx.call(rest.fetch(:class), parameters)
rescue TaskEngine::ChildFailed => error
  "failed: #{error.child.error_message}"
end
TaskEngine.task("check.exit") { |_ctx, code:| exit!(code) }

TaskEngine.serve(concurrency: Integer(ENV.fetch("CHECK_CONCURRENCY", "4"))) if $PROGRAM_NAME == __FILE__
