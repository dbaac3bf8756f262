// The tasks of the shop. The application creates them, the worker runs them.
import { NoRetry, task } from "task-engine";
import { pool } from "./database.js";

export const confirmOrder = task(
  "confirm_order",
  { retries: 5, timeout: "30s" },
  async (ctx, { order }) => {
    const { rowCount } = await pool.query(
      "UPDATE shop_orders SET confirmed = true WHERE id = $1",
      [order],
    );
    if (rowCount === 0) throw new NoRetry(`there is no order ${order}`);
    ctx.log(`order ${order} is confirmed`);
    return { order };
  },
);
