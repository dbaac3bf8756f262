import express from "express";
import { pool } from "./database.js";
import { confirmOrder } from "./tasks.js";

await pool.query(
  "CREATE TABLE IF NOT EXISTS shop_orders (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, item text NOT NULL CHECK (item <> ''), confirmed boolean NOT NULL DEFAULT false)",
);

const app = express();
app.use(express.json());

// The order and its task are created together, or neither is.
app.post("/orders", async (request, response) => {
  const db = await pool.connect();
  try {
    await db.query("BEGIN");
    const { rows } = await db.query(
      "INSERT INTO shop_orders (item) VALUES ($1) RETURNING id",
      [request.body?.item],
    );
    const order = Number(rows[0].id);
    const task = await confirmOrder.create(
      db,
      { order },
      { unique: `order ${order}` },
    );
    // A rule of the shop that is checked last.
    if (request.body.item === "piano") throw new Error("pianos are sold out");
    await db.query("COMMIT");
    response.status(201).json({ order, task: task.id });
  } catch (error) {
    await db.query("ROLLBACK");
    response.status(400).json({ error: error.message });
  } finally {
    db.release();
  }
});

const server = app.listen(process.env.PORT ?? 3000, () => {
  console.log(`http://localhost:${server.address().port}`);
});
