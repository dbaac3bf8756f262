# frozen_string_literal: true

require "pg"
require "task_engine"

# Confirms an order: reserves the item once, then lets a child task send the mail.
class ConfirmOrder < TaskEngine::Task
  options retries: 5, timeout: "30s"

  def perform(order:, item:, mail:)
    left = ctx.step("reserve") { take_from_stock(item) }
    ctx.log("order #{order}: #{left} of #{item} are left")
    ctx.call(SendMail, { to: mail, text: "Your #{item} is on its way." })
  rescue TaskEngine::ChildFailed => error
    "without a mail: #{error.child.error_message}"
  end

  private

  # A step can run twice, if its engine dies before the record. Here that costs an item.
  def take_from_stock(item)
    db = PG.connect(ENV.fetch("DATABASE_URL"))
    take = "UPDATE stock SET items = items - 1 WHERE name = $1 AND items > 0 RETURNING items"
    row = db.exec_params(take, [item]).first or raise TaskEngine::NoRetry, "#{item} is sold out"
    row["items"].to_i
  ensure
    db&.close
  end
end

# Stands for a mail server that answers slowly to some, and never to others.
class SendMail < TaskEngine::Task
  options retry: { maximum: 2, first_delay: "100ms" }, rate: "100/1s"

  def perform(to:, text:)
    raise TaskEngine::NoRetry, "#{to} is no address" unless to.include?("@")
    raise TaskEngine::RetryAfter.new("200ms", "the server is busy") if to.end_with?("@busy.example") && ctx.attempt == 1

    ctx.log("to #{to}: #{text}")
    "sent to #{to} in attempt #{ctx.attempt}"
  end
end

# Counts the orders of the day, once for many orders: it is unique while it waits.
class CountOrders < TaskEngine::Task
  def perform
    db = PG.connect(ENV.fetch("DATABASE_URL"))
    db.exec("SELECT count(*) FROM orders").getvalue(0, 0).to_i
  ensure
    db&.close
  end
end
