/** Workers of a real engine, and real kills. */

import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { test, type TestContext } from "node:test";
import { create, createFlow, signal } from "task-engine";
import pg from "pg";
import { DATABASE_URL, Project, until, worker } from "./helpers.js";

function project(t: TestContext, name: string, database?: string): Project {
  return new Project(
    t,
    `[worker.${name}_ts]\ncommand = [${JSON.stringify(process.execPath)}, ${JSON.stringify(worker(name))}]\n`,
    database,
  );
}

const FAST = ["--heartbeat", "200ms", "--dead-after", "2s", "--poll", "200ms"];

/** The process of a line of effects.txt. */
async function pidOf(folder: Project, effect: string): Promise<number> {
  return until(effect, () => {
    const found = new RegExp(`^${effect} \\d+ (\\d+)$`, "m").exec(folder.read("effects.txt"));
    return found ? Number(found[1]) : undefined;
  });
}

test("a worker passes the check of workers", async (t) => {
  const checked = await project(t, "check").cli("check", "--worker", `"${process.execPath}" "${worker("check")}"`);
  assert.equal(checked.code, 0, checked.stdout + checked.stderr);
  assert.match(checked.stderr, /29 cases, no problem$/m);
});

test("task-engine.toml needs only the command, and every answer arrives", async (t) => {
  const p = project(t, "check");
  assert.equal((await p.cli("migrate")).code, 0);
  const value = { text: "ü\u{1f600}\n\u2028".repeat(1000), list: [1.5, null, true] };
  const ids = [
    await p.create("check.echo", { value }),
    await p.create("check.step", { values: [1, "two", null] }),
    await p.create("check.fail_for_good", { message: "gone" }),
    await p.create("check.log", { lines: 10_000 }),
    await p.create("check.print", { text: "printed" }),
    await p.create("check.progress", { percent: 40, message: "half" }),
    await p.create("check.wait", { timeout: "1ms" }),
  ];
  const [info, snoozed, failedLater] = [
    await p.create("check.info"),
    await p.create("check.snooze", { message: "not yet", time: "1h" }),
    await p.create("check.fail_later", { message: "busy", time: "1h" }),
  ] as const;
  p.start();
  const [echo, step, failed, log, print, progress, waited] = await p.wait(...ids);
  assert.deepEqual(echo?.result, value);
  assert.deepEqual(step?.result, [1, "two", null]);
  assert.deepEqual([failed?.status, failed?.error?.message], ["failed", "gone"]);
  assert.equal(log?.result, 10_000);
  assert.match((await p.cli("logs", String(ids[3]))).stdout, /line 10000\s*$/);
  assert.deepEqual([print?.status, print?.result], ["stopped", null]);
  assert.equal(progress?.status, "stopped");
  assert.match((await p.cli("show", String(ids[5]), "--json")).stdout, /"percent":40/);
  assert.equal(waited?.result, "timed out");
  assert.deepEqual((await p.result(info)).result, {
    task_id: info,
    attempt: 1,
    retry_number: 0,
    class: "check.info",
    correlation_id: String(info),
  });
  for (const [id, retries] of [
    [snoozed, 0],
    [failedLater, 1],
  ] as const) {
    await until(`attempt 2 of task ${id}`, async () => {
      const shown = JSON.parse((await p.cli("show", String(id), "--json")).stdout) as {
        status: string;
        executions: unknown[];
        retry_number: number;
      };
      return shown.status === "waiting" && shown.executions.length === 1 && shown.retry_number === retries
        ? true
        : undefined;
    });
  }
});

test("a durable task survives its waits, and its catch and finally run once", async (t) => {
  const p = project(t, "durable");
  assert.equal((await p.cli("migrate")).code, 0);
  const id = await p.create("order", { item: "book" });
  p.start(FAST);
  await pidOf(p, "reserve");
  assert.equal((await p.cli("signal", String(id), "approved", '{"by": "ada"}')).code, 0);
  const { status, result } = await p.result(id);
  assert.deepEqual([status, result], ["stopped", { by: "ada", events: ["parcel of book", "too heavy"] }]);
  const effects = p
    .read("effects.txt")
    .trim()
    .split("\n")
    .map((line) => line.split(" ")[0]);
  assert.deepEqual(effects, ["reserve", "notify", "finally"]);
});

test("a killed worker costs only the step that ran", async (t) => {
  const p = project(t, "durable");
  assert.equal((await p.cli("migrate")).code, 0);
  const id = await p.create("killed");
  const engine = p.start(FAST);
  process.kill(await pidOf(p, "waiting"), "SIGKILL");
  assert.deepEqual((await p.result(id)).result, ["charge", 2]);
  assert.equal(p.read("effects.txt").match(/charge/g)?.length, 1);
  const shown = JSON.parse((await p.cli("show", String(id), "--json")).stdout) as {
    executions: { error: { exception: string } | null }[];
  };
  assert.ok(shown.executions.some((one) => one.error?.exception === "ProcessEnded"));
  engine.child.kill("SIGTERM");
  assert.equal((await engine.ended).code, 0);
});

test("a killed engine costs only the step that ran, and its worker ends", async (t) => {
  const p = project(t, "durable");
  assert.equal((await p.cli("migrate")).code, 0);
  const id = await p.create("killed");
  const first = p.start([...FAST, "--instance", "first"]);
  const pid = await pidOf(p, "waiting");
  first.child.kill("SIGKILL");
  p.start([...FAST, "--instance", "second"]);
  assert.deepEqual((await p.result(id)).result, ["charge", 2]);
  assert.equal(p.read("effects.txt").match(/charge/g)?.length, 1);
  await until("the end of the worker", () => {
    try {
      process.kill(pid, 0);
      return undefined;
    } catch {
      return true;
    }
  });
});

test("cancelled and timed out tasks end at once, and others continue", async (t) => {
  const p = project(t, "durable");
  assert.equal((await p.cli("migrate")).code, 0);
  const [waits, slow] = [await p.create("killed"), await p.create("until_file")];
  const timedOut = await p.create("timed_out");
  p.start(FAST);
  const { status, error } = await p.result(timedOut);
  assert.deepEqual([status, error?.exception], ["failed", "Timeout"]);
  await pidOf(p, "waiting");
  writeFileSync(p.path("go"), "");
  assert.equal((await p.result(slow)).result, "went");
  assert.equal((await p.cli("cancel", String(waits), "--yes")).code, 0);
});

test("an unhandled rejection ends the process, and fails its tasks", async (t) => {
  const p = project(t, "durable");
  assert.equal((await p.cli("migrate")).code, 0);
  const id = await p.create("rejects");
  p.start();
  const { status, error } = await p.result(id);
  assert.equal(status, "failed");
  assert.match(String(error?.message), /nobody handles this/);
});

test("running tasks finish when the engine stops", async (t) => {
  const p = project(t, "durable");
  assert.equal((await p.cli("migrate")).code, 0);
  const [id, other] = [await p.create("until_file"), await p.create("killed")];
  const engine = p.start();
  await pidOf(p, "waiting");
  assert.equal((await p.cli("cancel", String(other), "--yes")).code, 0);
  engine.child.kill("SIGTERM");
  writeFileSync(p.path("go"), "");
  assert.equal((await engine.ended).code, 0);
  assert.equal((await p.result(id)).result, "went");
});

test("PostgreSQL: a flow is created in a transaction, and executed", async (t) => {
  const p = project(t, "durable", DATABASE_URL);
  const db = new pg.Client(DATABASE_URL);
  await db.connect();
  t.after(() => db.end());
  p.start();
  await db.query("BEGIN");
  const { tasks } = await createFlow(db, {
    tasks: {
      ship: { class: "ship", parameters: { item: "cup" } },
      order: { class: "order", parameters: { item: "book" }, after: "ship" },
    },
  });
  await db.query("COMMIT");
  const order = tasks.order ?? 0;
  assert.ok(["kept", "delivered"].includes(await signal(db, order, "approved", { by: "bob" })));
  const failed = await create(db, "ship", { item: "piano" });
  assert.deepEqual((await p.result(order)).result, { by: "bob", events: ["parcel of book", "too heavy"] });
  assert.equal((await p.result(failed.id)).error?.message, "too heavy");
});

test("PostgreSQL: parameters and results of 1 MB", async (t) => {
  const p = project(t, "check", DATABASE_URL);
  const db = new pg.Client(DATABASE_URL);
  await db.connect();
  t.after(() => db.end());
  p.start();
  const value = "ü".repeat(500_000);
  const { id } = await create(db, "check.echo", { value });
  assert.ok((await p.result(id)).result === value);
});
