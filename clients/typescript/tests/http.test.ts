/** Creation over HTTP. */

import assert from "node:assert/strict";
import { test, type TestContext } from "node:test";
import {
  create,
  createFlow,
  createMany,
  HttpClient,
  HttpError,
  InvalidArgument,
  signal,
  signalUnique,
  task,
} from "task-engine";
import { Project, until } from "./helpers.js";

async function server(t: TestContext): Promise<{ project: Project; url: string; token: string }> {
  const project = new Project(t, "");
  assert.equal((await project.cli("migrate")).code, 0);
  const { stdout } = await project.cli("tokens", "create", "shop", "--role", "operator");
  const engine = project.start(["--web", "127.0.0.1:0", "--web-role", "none"]);
  let log = "";
  engine.child.stderr.on("data", (text: string) => (log += text));
  engine.child.stdout.on("data", (text: string) => (log += text));
  const url = await until("the address of the server", () => /http:\/\/127\.0\.0\.1:\d+/.exec(log)?.[0]);
  return { project, url, token: stdout.trim() };
}

test("creates tasks, flows and signals over HTTP", async (t) => {
  const { project, url, token } = await server(t);
  const http = new HttpClient(`${url}/`, { token });
  const { id, outcome } = await create(
    http,
    "http_one",
    { ü: "'" },
    {
      priority: 5,
      queue: "mail",
      after: "1h",
      correlationId: "flow",
      unique: { key: "k", scope: "1 day", onConflict: "replace" },
      retry: { maximum: 2, firstDelay: "10s" },
    },
  );
  assert.equal(outcome, "created");
  const shown = JSON.parse((await project.cli("show", String(id), "--json")).stdout) as Record<string, unknown>;
  assert.deepEqual(
    [shown.class, shown.parameters, shown.priority, shown.queue, shown.correlation_id],
    ["http_one", { ü: "'" }, 5, "mail", "flow"],
  );
  assert.equal(Date.parse(String(shown.scheduled_at)) - Date.parse(String(shown.created_at)), 3_600_000);
  assert.deepEqual((shown.context as { retry: unknown }).retry, { maximum: 2, first_delay_ms: 10_000 });
  assert.deepEqual(await create(http, "http_one", {}, { unique: "k" }), { id, outcome: "kept" });

  const definition = task("http_defined", { queue: "big", priority: 9 }, (_, { n }: { n: number }) => n);
  const defined = await definition.create(http, { n: 1 });
  const own = JSON.parse((await project.cli("show", String(defined.id), "--json")).stdout) as Record<string, unknown>;
  assert.deepEqual([own.queue, own.priority, own.parameters], ["big", 9, { n: 1 }]);

  const first = await create(http, "http_once", { n: 1 }, { idempotencyKey: "order-17" });
  assert.equal((await create(http, "http_once", { n: 1 }, { idempotencyKey: "order-17" })).id, first.id);
  await assert.rejects(create(http, "http_once", { n: 2 }, { idempotencyKey: "order-17" }), (error) => {
    assert.ok(error instanceof HttpError);
    assert.deepEqual([error.status, error.code], [422, "422"]);
    return true;
  });

  const many = await createMany(http, [{ class: "http_many" }, { class: definition, parameters: { n: 2 } }]);
  assert.equal(many.length, 2);
  const flow = { name: "f", tasks: { a: { class: "http_a" }, b: { class: "http_b", after: "a", delay: "1h" } } };
  const created = await createFlow(http, flow, { idempotencyKey: "flow-1" });
  assert.deepEqual(await createFlow(http, flow, { idempotencyKey: "flow-1" }), created);
  assert.ok(created.correlationId);
  const dependent = await create(
    http,
    "http_after",
    {},
    { afterTask: [created.tasks.a ?? 0], correlationId: "dependent" },
  );
  const after = JSON.parse((await project.cli("show", String(dependent.id), "--json")).stdout) as Record<
    string,
    unknown
  >;
  assert.deepEqual([after.is_blocked, after.correlation_id], [true, "dependent"]);

  assert.equal(await signal(http, id, "approved", { by: "ada" }), "kept");
  assert.equal(await signal(http, id, "approved"), "duplicate");
  assert.equal(await signal(http, 99_999, "approved"), "not_found");
  assert.deepEqual(await signalUnique(http, "http_one", "k", "paid", 7), { taskId: id, status: "kept" });
  assert.equal((await signalUnique(http, "http_one", "none", "paid", 7)).status, "not_found");
});

test("errors over HTTP have the status and the detail", async (t) => {
  const { url, token } = await server(t);
  const http = new HttpClient(url, { token });
  await assert.rejects(create(new HttpClient(url, { token: "wrong" }), "a"), { name: "HttpError", status: 401 });
  await assert.rejects(create(http, "a", {}, { limits: { nothing: "a" } }), (error) => {
    assert.ok(error instanceof HttpError);
    assert.equal(error.status, 400);
    assert.match(error.message, /^HTTP 400: .*limit "nothing" does not exist/i);
    return true;
  });
  await assert.rejects(signal(new HttpClient(`${url}/elsewhere`, { token }), 1, "a"), {
    name: "HttpError",
    status: 404,
  });
  await assert.rejects(create(new HttpClient("http://127.0.0.1:1"), "a"), {
    name: "HttpError",
    status: 0,
    code: "NoAnswer",
  });
  assert.throws(() => new HttpClient("localhost:8642"), InvalidArgument);
  await assert.rejects(
    create(http, "a", {}, { idempotencyKey: "a", unique: "b" }),
    /a unique key or an idempotencyKey, not both/,
  );
  await assert.rejects(create(http, "a", {}, { schema: "b" }), /schema: only for SQL/);
  const tooMany = Array.from({ length: 1001 }, () => ({ class: "a" }));
  await assert.rejects(createMany(http, tooMany), /at most 1000 tasks, not 1001/);
});
