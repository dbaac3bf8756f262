/** A worker, line by line, without an engine. */

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { spawn } from "node:child_process";
import { createInterface } from "node:readline";
import { test, type TestContext } from "node:test";
import { Piped, worker } from "./helpers.js";

async function started(t: TestContext, name = "check", env = {}): Promise<Piped> {
  const piped = new Piped(t, name, env);
  assert.equal((await piped.next()).protocol, 1);
  return piped;
}

test("announces its classes, concurrency and client", async (t) => {
  const piped = new Piped(t, "odd");
  const line = await piped.next();
  assert.equal(line.protocol, 1);
  assert.equal(line.concurrency, 3);
  const { version } = JSON.parse(readFileSync(new URL("../package.json", import.meta.url), "utf8")) as {
    version: string;
  };
  assert.equal(line.client, `task-engine (TypeScript) ${version}`);
  const classes = line.classes as Record<string, unknown>[];
  const resize = classes.find((one) => one.class === "resize");
  assert.deepEqual(resize?.retry, { maximum: 5 });
  assert.equal(resize.timeout, "30000ms");
  assert.deepEqual((resize.schema as { required: string[] }).required, ["width"]);
  const all = classes.find((one) => one.class === "all_options");
  assert.deepEqual(all, {
    class: "all_options",
    timeout: "90000ms",
    grace: "2000ms",
    retry: {
      maximum: 3,
      first_delay: "1000ms",
      factor: 2,
      cap: "3600000ms",
      jitter: 0.1,
      restart_after_progress: false,
    },
    queue: "mail",
    priority: 5,
    result_bytes: 1000,
    log_lines: 10,
    secret: ["login.password"],
    limit: { max: 2, key: "customer" },
    rate: { max: 100, per: "1000ms", even: true },
    in_order: { key: "account" },
    fair: "tenant",
    limits: [{ name: "smtp", max: 5, key: "host" }],
    schema: { type: "object" },
  });
});

test("answers each kind of end", async (t) => {
  const piped = await started(t);
  const answer = async (name: string, parameters: object) => {
    piped.task("7.2", name, parameters);
    const { id, ...line } = await piped.next();
    assert.equal(id, "7.2");
    return line;
  };
  assert.deepEqual(await answer("check.echo", { value: { ü: ["\u{1f600}", 1.5, null] } }), {
    result: { ü: ["\u{1f600}", 1.5, null] },
  });
  assert.deepEqual(await answer("check.info", {}), {
    result: { task_id: 7, attempt: 2, retry_number: 1, class: "check.info", correlation_id: "flow" },
  });
  const failed = await answer("check.fail", { message: "no such account" });
  const error = failed.error as { exception: string; message: string; backtrace: string };
  assert.deepEqual([error.exception, error.message, failed.retry], ["RangeError", "no such account", undefined]);
  // Only code of the user.
  assert.match(error.backtrace, /^ {4}at .*workers\/check\.js:\d+:\d+\)?$/);
  const forGood = await answer("check.fail_for_good", { message: "gone" });
  assert.deepEqual([(forGood.error as { message: string }).message, forGood.retry], ["gone", false]);
  assert.equal((await answer("check.fail_later", { message: "busy", time: "30s" })).retry, "30000ms");
  assert.deepEqual(await answer("check.snooze", { message: "not yet", time: "1m" }), {
    snooze: "60000ms",
    message: "not yet",
  });
  assert.deepEqual(await answer("check.rate_limited", { message: "429", time: "2s" }), {
    rate_limited: "2000ms",
    message: "429",
  });
  assert.deepEqual(await answer("check.dependencies", {}), { result: {} });
  const unknown = await answer("check.nothing", {});
  assert.match((unknown.error as { message: string }).message, /no task "check.nothing"; it has check.echo/);
  assert.deepEqual(await piped.end(), { code: 0, lines: [] });
});

test("errors keep their cause, and may be anything", async (t) => {
  const piped = await started(t, "odd");
  const error = async (kind: string) => {
    piped.task("1.1", "throws", { kind });
    const line = await piped.next();
    return { ...(line.error as { exception: string; message: string; backtrace: string }), retry: line.retry };
  };
  assert.match((await error("cause")).backtrace, /Caused by TypeError: inner\n {4}at /);
  assert.equal((await error("cause")).exception, "OwnError");
  const wrapped = await error("no retry of a cause");
  assert.deepEqual([wrapped.exception, wrapped.message, wrapped.retry], ["TypeError", "inner", false]);
  assert.equal((await error("text")).message, "only a text");
  assert.equal((await error("undefined")).message, "undefined");
  const long = await error("long");
  assert.ok(long.message.length < 5000 && long.message.startsWith("xxx"));
  const badTime = await error("bad time");
  assert.match(badTime.message, /^RetryAfter: "soon" is not a duration/);
});

test("results that are not JSON fail the task", async (t) => {
  const piped = await started(t, "odd");
  for (const [kind, message] of [
    ["bigint", "the result of returns is not JSON: Do not know how to serialize a BigInt"],
    ["function", "the result of returns is not JSON: a function"],
    ["nan", "the result of returns is not JSON: the number NaN"],
    ["cycle", "the result of returns is not JSON: Converting circular structure"],
    ["step", 'the result of step "s" is not JSON: a symbol'],
  ]) {
    piped.task("1.1", "returns", { kind });
    let line = await piped.next();
    if (line.step === "s") {
      piped.send({ id: "1.1", step: "s", run: true });
      line = await piped.next();
    }
    const error = line.error as { exception: string; message: string };
    assert.equal(error.exception, "ResultNotJson");
    assert.ok(error.message.startsWith(String(message)), error.message);
  }
  piped.task("1.2", "returns", { kind: "long" });
  assert.equal(((await piped.next()).error as { exception: string }).exception, "ResultTooLong");
  piped.task("1.3", "returns", { kind: "undefined" });
  assert.deepEqual(await piped.next(), { id: "1.3", result: null });
});

test("parameters that do not fit the schema fail without a retry", async (t) => {
  const piped = await started(t, "odd");
  piped.task("1.1", "resize", { width: "wide" });
  const line = await piped.next();
  const error = line.error as { exception: string; message: string };
  assert.equal(line.retry, false);
  assert.equal(error.exception, "InvalidParameters");
  assert.match(error.message, /^invalid parameters: width: /);
  piped.task("1.2", "resize", { width: 80 });
  assert.deepEqual(await piped.next(), { id: "1.2", result: { width: 80, format: "png" } });
  piped.task("1.3", "safe_parse", { name: 7 });
  const other = await piped.next();
  assert.deepEqual(
    [(other.error as { message: string }).message, other.retry],
    ["invalid parameters: name: not a text", false],
  );
});

test("printed text goes to the standard error", async (t) => {
  const piped = await started(t);
  piped.task("1.1", "check.print", { text: "hello from a task" });
  assert.deepEqual(await piped.next(), { id: "1.1", result: null });
  assert.deepEqual(await piped.end(), { code: 0, lines: [] });
  assert.equal(piped.stderr, "hello from a task\nhello from a task\n");
});

test("log lines are joined, in order, before the answer", async (t) => {
  const piped = await started(t);
  piped.task("1.1", "check.log", { lines: 10_000 });
  const { lines } = await piped.end();
  const logged = lines.flatMap((line) => (line.log as string[] | undefined) ?? []);
  assert.equal(logged.length, 10_000);
  assert.deepEqual([logged[0], logged[9999]], ["line 1", "line 10000"]);
  assert.ok(lines.length < 10, `${lines.length} lines`);
  assert.deepEqual(lines.at(-1), { id: "1.1", result: 10_000 });
  for (const line of lines) assert.ok(Buffer.byteLength(JSON.stringify(line)) < 65_536);
});

test("progress, logs and answers keep their order", async (t) => {
  const piped = await started(t, "odd");
  piped.task("1.1", "mixed");
  const { lines } = await piped.end();
  assert.deepEqual(lines, [
    { id: "1.1", log: ["one", "two { a: 1 }"] },
    { id: "1.1", progress: 40.5, message: "half" },
    { id: "1.1", log: ["three", "lines"] },
    { id: "1.1", result: null },
  ]);
});

test("unknown lines and fields are ignored, and long ones are read", async (t) => {
  const piped = await started(t);
  const value = "ü".repeat(500_000);
  piped.send(
    "",
    "nonsense",
    "[1]",
    "null",
    { hello: 1 },
    { cancel: "9.9" },
    { id: "9.9", step: "a", run: true },
    { id: 7, class: "x", parameters: {} },
  );
  piped.task("1.1", "check.echo", { value }, { later: { field: true } });
  assert.deepEqual(await piped.next(), { id: "1.1", result: value });
  // A character and a line may be cut anywhere.
  const bytes = Buffer.from(
    `${JSON.stringify({ id: "1.2", task_id: 1, attempt: 1, retry_number: 0, class: "check.echo", correlation_id: "1", parameters: { value: "äö" } })}\n`,
  );
  for (const byte of bytes) piped.child.stdin.write(Buffer.from([byte]));
  assert.deepEqual(await piped.next(), { id: "1.2", result: "äö" });
});

test("steps run once, and later uses of a name have the name of the engine", async (t) => {
  const piped = await started(t);
  piped.task("1.1", "check.step", { values: ["a", "b"] });
  assert.deepEqual(await piped.next(), { id: "1.1", step: "value" });
  piped.send({ id: "1.1", new: "a line of a later version" }, { id: "1.1", step: "value", run: true, more: 1 });
  assert.deepEqual(await piped.next(), { id: "1.1", step: "value", result: "a" });
  piped.send({ id: "1.1", step: "value", recorded: "a" });
  assert.deepEqual(await piped.next(), { id: "1.1", step: "value" });
  piped.send({ id: "1.1", step: "value#2", run: true });
  assert.deepEqual(await piped.next(), { id: "1.1", step: "value#2", result: "b" });
  piped.send({ id: "1.1", step: "value#2", recorded: "other" });
  assert.deepEqual(await piped.next(), { id: "1.1", result: ["a", "other"] });
  piped.task("1.2", "check.step", { values: ["a"] });
  await piped.next();
  piped.send({ id: "1.2", step: "value", recorded: null });
  assert.deepEqual(await piped.next(), { id: "1.2", result: [null] });
});

test("sleeps, waits and calls", async (t) => {
  const piped = await started(t);
  piped.task("1.1", "check.sleep", { time: "3d" });
  assert.deepEqual(await piped.next(), { id: "1.1", sleep: "pause", for: "259200000ms" });
  piped.send({ id: "1.1", sleep: "pause", over: true });
  assert.deepEqual(await piped.next(), { id: "1.1", result: "awake" });
  piped.task("1.2", "check.wait", { timeout: "7d" });
  assert.deepEqual(await piped.next(), { id: "1.2", wait: "approved", timeout: "604800000ms" });
  piped.send({ id: "1.2", wait: "approved", signal: { by: "ada" } });
  assert.deepEqual(await piped.next(), { id: "1.2", result: { by: "ada" } });
  piped.task("1.3", "check.wait", { timeout: 1 });
  await piped.next();
  piped.send({ id: "1.3", wait: "approved", timed_out: true });
  assert.deepEqual(await piped.next(), { id: "1.3", result: "timed out" });
  piped.task("1.4", "check.call", { class: "child", parameters: { a: 1 } });
  assert.deepEqual(await piped.next(), { id: "1.4", call: "child", tasks: [{ parameters: { a: 1 }, class: "child" }] });
  piped.send({ id: "1.4", call: "child", results: [{ task_id: 8, status: "stopped", result: [1] }] });
  assert.deepEqual(await piped.next(), { id: "1.4", result: [1] });
  piped.task("1.5", "check.call", { class: "child", parameters: {} });
  await piped.next();
  piped.send({
    id: "1.5",
    call: "child",
    results: [{ task_id: 8, status: "failed", error: { exception: "E", message: "no paper" } }],
  });
  assert.deepEqual(await piped.next(), { id: "1.5", result: "failed: no paper" });
});

test("no code runs after the end of an attempt, and the process can exit", async (t) => {
  const piped = await started(t);
  piped.task("1.1", "check.sleep", { time: "3d" });
  await piped.next();
  piped.send({ id: "1.1", ended: "suspended", message: "sleeping" }, { cancel: "1.1" });
  assert.deepEqual(await piped.end(), { code: 0, lines: [] });
});

test("a cancelled task can answer, and is ended at its next durable call", async (t) => {
  const piped = await started(t, "odd");
  const cancelled = (line: Record<string, unknown>) => {
    assert.equal((line.error as { exception: string }).exception, "Cancelled");
  };
  piped.task("1.1", "catches", { how: "signal" });
  assert.deepEqual(await piped.next(), { id: "1.1", log: ["started"] });
  piped.send({ cancel: "1.1" });
  assert.deepEqual(await piped.next(), { id: "1.1", result: "cleaned up" });
  // The engine answers a sleep of some seconds late.
  piped.task("1.2", "catches", { how: "sleep" });
  assert.deepEqual(await piped.next(), { id: "1.2", log: ["started"] });
  assert.equal((await piped.next()).sleep, "nap");
  piped.send({ cancel: "1.2" });
  cancelled(await piped.next());
  // What has run is recorded, and nothing after it runs.
  piped.task("1.3", "catches", { how: "step" });
  assert.deepEqual(await piped.next(), { id: "1.3", log: ["started"] });
  assert.equal((await piped.next()).step, "work");
  piped.send({ id: "1.3", step: "work", run: true });
  assert.deepEqual(await piped.next(), { id: "1.3", log: ["in the step"] });
  piped.send({ cancel: "1.3" });
  assert.deepEqual(await piped.next(), { id: "1.3", step: "work", result: "done" });
  cancelled(await piped.next());
  piped.task("1.4", "catches", { how: "log" });
  assert.deepEqual(await piped.next(), { id: "1.4", log: ["started"] });
  piped.send({ cancel: "1.4" });
  cancelled(await piped.next());
  assert.deepEqual(await piped.end(), { code: 0, lines: [] });
});

test("running tasks are finished when the input is closed", async (t) => {
  const piped = await started(t, "odd");
  piped.task("1.1", "slow");
  piped.task("1.2", "catches", { how: "sleep" });
  const { code, lines } = await piped.end();
  assert.equal(code, 0);
  assert.deepEqual(lines.at(-1), { id: "1.1", result: "finished" });
});

test("more than 100 steps at a time wait for their turn", async (t) => {
  const piped = await started(t, "odd");
  piped.task("1.1", "many_steps", { steps: 300 });
  const steps: unknown[] = [];
  for (let n = 0; n < 64; n++) steps.push((await piped.next()).step);
  // No other request comes before this answer.
  piped.task("1.2", "returns", { kind: "undefined" });
  assert.deepEqual(await piped.next(), { id: "1.2", result: null });
  for (const step of steps) {
    piped.send({ id: "1.1", step, recorded: 1 });
    if (steps.length < 300) steps.push((await piped.next()).step);
  }
  assert.equal(new Set(steps).size, 300);
  assert.deepEqual(await piped.next(), { id: "1.1", result: 300 });
});

test("nothing is sent after the end of an attempt, by code that still runs", async (t) => {
  const piped = await started(t, "odd");
  piped.task("1.1", "runs_on");
  assert.equal((await piped.next()).step, "work");
  assert.equal((await piped.next()).sleep, "pause");
  piped.send({ id: "1.1", step: "work", run: true }, { id: "1.1", ended: "suspended", message: "sleeping" });
  const { code, lines } = await piped.end();
  assert.deepEqual([code, lines], [0, []]);
  assert.match(piped.stderr, /the code has ended/);
});

test("an invalid durable call fails with a message, and is not sent", async (t) => {
  const piped = await started(t, "odd");
  for (const [how, message] of [
    ["name", 'step: the name: "a#2" contains #, which numbers repeated names; leave it out'],
    ["time", 'sleep "nap": "soon" is not a duration; write "30s", "10m", "1h30m", "3 days" or a number of seconds'],
  ]) {
    piped.task("1.1", "bad_call", { how });
    const { error } = await piped.next();
    assert.equal((error as { message: string }).message, message);
  }
});

test("results of dependencies are read by name", async (t) => {
  const piped = await started(t, "odd");
  const dependencies = {
    extract: { id: 1, status: "stopped", result: 3 },
    load: { id: 2, status: "failed", error: { exception: "E", message: "disk full" } },
  };
  const result = async (name: string | number) => {
    piped.task("1.1", "depends", { name }, { dependencies });
    const line = await piped.next();
    return line.result ?? (line.error as { message: string }).message;
  };
  assert.equal(await result("extract"), 3);
  assert.equal(await result(1), 3);
  assert.equal(await result("load"), "load did not succeed (failed): E: disk full");
  assert.equal(await result("extrat"), 'this task does not depend on "extrat"; it depends on extract, load');
});

test("an open handle does not keep an ended worker alive", async (t) => {
  const piped = await started(t, "odd", { ODD_OPEN_HANDLE: "1" });
  assert.deepEqual(await piped.end(), { code: 0, lines: [] });
});

test("log lines before process.exit are sent", async (t) => {
  const piped = await started(t, "odd");
  piped.task("1.1", "exits");
  assert.deepEqual(await piped.end(), { code: 3, lines: [{ id: "1.1", log: ["last words"] }] });
});

test("the memory of suspended attempts is freed", async (t) => {
  const piped = await started(t, "odd", { NODE_OPTIONS: "--expose-gc" });
  for (let n = 1; n <= 100; n++) {
    piped.task(`${n}.1`, "suspended");
    assert.equal((await piped.next()).sleep, "pause");
    piped.send({ id: `${n}.1`, ended: "suspended", message: "sleeping" });
  }
  piped.task("0.1", "collected");
  const { result } = await piped.next();
  // Local variables of the last one may still be on the stack.
  assert.ok((result as number) >= 98, `${result as number} of 100`);
});

test("a full pipe loses nothing, and does not stop the worker", async (t) => {
  const child = spawn(process.execPath, [worker("check")]);
  t.after(() => child.kill("SIGKILL"));
  const value = "x".repeat(100_000);
  for (let n = 0; n < 200; n++) {
    const line = {
      id: `${n}.1`,
      task_id: n,
      attempt: 1,
      retry_number: 0,
      class: "check.echo",
      correlation_id: "1",
      parameters: { value },
    };
    child.stdin.write(`${JSON.stringify(line)}\n`);
  }
  // All are read, although no answer is.
  await new Promise<void>((resolve) => child.stdin.end(resolve));
  let answers = 0;
  for await (const line of createInterface({ input: child.stdout }))
    if ((JSON.parse(line) as { result?: string }).result === value) answers++;
  assert.equal(answers, 200);
});
