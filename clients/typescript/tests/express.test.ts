/** The example with Express, with the packed package, PostgreSQL and an engine. */

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { cpSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import pg from "pg";
import { DATABASE_URL, Project, until } from "./helpers.js";
import { install, PACKAGE } from "./packed.js";

test("an order and its task are created together, and executed", async (t) => {
  const p = new Project(t, "", DATABASE_URL);
  cpSync(join(PACKAGE, "../../examples/express"), p.folder, { recursive: true });
  await install(p.folder, "express", "pg");
  const env = { DATABASE_URL };
  const app = spawn(process.execPath, ["app.js"], { cwd: p.folder, env: { ...process.env, ...env, PORT: "0" } });
  t.after(() => app.kill("SIGKILL"));
  let log = "";
  for (const stream of [app.stdout, app.stderr]) stream.setEncoding("utf8").on("data", (text: string) => (log += text));
  const url = await until("the application", () => /http:\/\/localhost:\d+/.exec(log)?.[0]);
  const post = async (item: string) => {
    const answer = await fetch(`${url}/orders`, {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify({ item }),
    });
    return { status: answer.status, body: (await answer.json()) as { order: number; task: number; error?: string } };
  };
  const db = new pg.Pool({ connectionString: DATABASE_URL });
  t.after(() => db.end());
  const tasks = async () =>
    Number(
      (await db.query<{ n: string }>("SELECT count(*) AS n FROM task_engine.tasks WHERE task_class = 'confirm_order'"))
        .rows[0]?.n,
    );

  const good = await post("book");
  assert.equal(good.status, 201, good.body.error);
  const before = await tasks();
  assert.deepEqual(await post("piano"), { status: 400, body: { error: "pianos are sold out" } });
  assert.equal(await tasks(), before);
  const engine = p.start([], env);
  assert.deepEqual((await p.result(good.body.task)).result, { order: good.body.order });
  const { rows } = await db.query("SELECT item, confirmed FROM shop_orders WHERE id = $1", [good.body.order]);
  assert.deepEqual(rows, [{ item: "book", confirmed: true }]);
  engine.child.kill("SIGTERM");
  assert.equal((await engine.ended).code, 0);
});
