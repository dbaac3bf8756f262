# frozen_string_literal: true

# The application: `ruby shop.rb setup`, `ruby shop.rb order book ada@example.com`.
require_relative "tasks"

db = PG.connect(ENV.fetch("DATABASE_URL"))

case ARGV
in ["setup"]
  db.exec(<<~SQL)
    CREATE TABLE IF NOT EXISTS orders (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, item text NOT NULL);
    CREATE TABLE IF NOT EXISTS stock (name text PRIMARY KEY, items integer NOT NULL);
    INSERT INTO stock VALUES ('book', 10), ('lamp', 1) ON CONFLICT DO NOTHING;
  SQL
in ["order", item, mail]
  # The order and its tasks commit together, or neither does.
  db.transaction do
    order = db.exec_params("INSERT INTO orders (item) VALUES ($1) RETURNING id", [item]).getvalue(0, 0).to_i
    puts ConfirmOrder.create(db, order:, item:, mail:)
    CountOrders.set(unique: "today", scope: :waiting, after: "1s").create(db)
    known = db.exec_params("SELECT FROM stock WHERE name = $1", [item]).ntuples == 1
    abort "There is no #{item} in this shop; nothing was stored." unless known
  end
else
  abort "Usage: ruby shop.rb setup | order ITEM MAIL"
end
