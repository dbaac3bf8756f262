/** Workers that connect to an engine. */

import assert from "node:assert/strict";
import { spawn, type ChildProcess } from "node:child_process";
import { writeFileSync } from "node:fs";
import { createServer, type Server, type Socket } from "node:net";
import { createInterface } from "node:readline";
import { test, type TestContext } from "node:test";
import { Project, run, until, worker, type Engine } from "./helpers.js";

interface Remote {
  child: ChildProcess;
  stderr: () => string;
  stdout: () => string;
  ended: Promise<number | null>;
}

function connect(t: TestContext, name: string, cwd: string, env: Record<string, string>): Remote {
  const child = spawn(process.execPath, [worker(name)], {
    cwd,
    env: { ...process.env, ...env },
    stdio: ["ignore", "pipe", "pipe"],
  });
  let [stderr, stdout] = ["", ""];
  child.stderr.setEncoding("utf8").on("data", (text: string) => (stderr += text));
  child.stdout.setEncoding("utf8").on("data", (text: string) => (stdout += text));
  t.after(() => child.kill("SIGKILL"));
  const ended = new Promise<number | null>((resolve) => child.once("close", resolve));
  return { child, stderr: () => stderr, stdout: () => stdout, ended };
}

/** A server that plays the engine. */
async function listen(t: TestContext): Promise<{ url: string; next: () => Promise<Played>; server: Server }> {
  const server = createServer();
  const waiting: Socket[] = [];
  server.on("connection", (socket) => {
    socket.on("error", () => undefined);
    waiting.push(socket);
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  t.after(() => {
    for (const socket of waiting) socket.destroy();
    server.close();
  });
  const { port } = server.address() as { port: number };
  let taken = 0;
  const next = async () => {
    const socket = await until("a connection", () => waiting[taken]);
    taken++;
    return new Played(socket);
  };
  return { url: `tcp://127.0.0.1:${port}`, next, server };
}

class Played {
  readonly socket: Socket;
  readonly #lines: AsyncIterator<string>;

  constructor(socket: Socket) {
    this.socket = socket;
    this.#lines = createInterface({ input: socket })[Symbol.asyncIterator]();
  }

  send(line: object): void {
    this.socket.write(`${JSON.stringify(line)}\n`);
  }

  task(id: string, name: string, parameters: object = {}): void {
    this.send({ id, task_id: 1, attempt: 1, retry_number: 0, class: name, correlation_id: "1", parameters });
  }

  async line(): Promise<Record<string, unknown>> {
    const { value, done } = (await this.#lines.next()) as IteratorResult<string, undefined>;
    if (done) throw new Error("closed");
    return JSON.parse(value) as Record<string, unknown>;
  }
}

test("announces itself with its token and name, and prints where it likes", async (t) => {
  const { url, next } = await listen(t);
  const remote = connect(t, "check", ".", { TASK_ENGINE_CONNECT: url, TASK_ENGINE_LISTEN_TOKEN: "secret" });
  const engine = await next();
  const first = await engine.line();
  assert.deepEqual([first.protocol, first.token, first.concurrency], [1, "secret", 10]);
  engine.send({ connected: "resizer-1" });
  engine.task("1.1", "check.print", { text: "free" });
  assert.deepEqual(await engine.line(), { id: "1.1", result: null });
  assert.match(remote.stderr(), /connected as resizer-1/);
  assert.equal(remote.stdout(), "free\nfree\n");
});

test("a refused worker ends with the reason", async (t) => {
  const { url, next } = await listen(t);
  const remote = connect(t, "check", ".", { TASK_ENGINE_CONNECT: url });
  const engine = await next();
  await engine.line();
  engine.send({ refused: "a valid token is needed" });
  assert.equal(await remote.ended, 1);
  assert.match(remote.stderr(), /ConnectionRefused: the engine refused this worker: a valid token is needed/);
});

test("a temporary refusal is tried again", async (t) => {
  const { url, next } = await listen(t);
  const remote = connect(t, "check", ".", { TASK_ENGINE_CONNECT: url });
  const engine = await next();
  await engine.line();
  engine.send({ refused: "no database", again: true });
  const second = await next();
  assert.match(remote.stderr(), /refused this worker: no database/);
  second.socket.destroy();
});

test("a lost connection cancels the tasks, and the worker connects again", async (t) => {
  const { url, next } = await listen(t);
  const remote = connect(t, "odd", ".", { TASK_ENGINE_CONNECT: url });
  const first = await next();
  await first.line();
  first.send({ connected: "a" });
  first.task("1.1", "catches", { how: "log" });
  assert.deepEqual(await first.line(), { id: "1.1", log: ["started"] });
  first.socket.destroy();
  const second = await next();
  await second.line();
  second.send({ connected: "a" });
  second.task("2.1", "returns", { kind: "undefined" });
  // Nothing of the first task.
  assert.deepEqual(await second.line(), { id: "2.1", result: null });
  assert.match(remote.stderr(), /lost the connection to tcp:.*; connecting again in 1 s/);
  remote.child.kill("SIGTERM");
  assert.deepEqual(await second.line(), { stopping: true });
  second.socket.end();
  assert.equal(await remote.ended, 0);
});

test("SIGTERM lets running tasks finish", async (t) => {
  const { url, next } = await listen(t);
  const remote = connect(t, "odd", ".", { TASK_ENGINE_CONNECT: url });
  const engine = await next();
  await engine.line();
  engine.send({ connected: "a" });
  engine.task("1.1", "slow");
  engine.task("1.2", "returns", { kind: "undefined" });
  assert.equal((await engine.line()).id, "1.2");
  remote.child.kill("SIGTERM");
  assert.deepEqual(await engine.line(), { stopping: true });
  assert.deepEqual(await engine.line(), { id: "1.1", result: "finished" });
  engine.socket.end();
  assert.equal(await remote.ended, 0);
});

test("SIGTERM ends a worker that is not connected", async (t) => {
  const { url, server } = await listen(t);
  server.close();
  const remote = connect(t, "odd", ".", { TASK_ENGINE_CONNECT: url });
  await until("the second pause", () => remote.stderr().includes("connecting again in 2 s") || undefined);
  remote.child.kill("SIGTERM");
  assert.equal(await remote.ended, 0);
});

/** An engine that listens there, and its log. */
async function listening(
  p: Project,
  address: string,
  args: string[] = [],
  env: Record<string, string> = {},
): Promise<{ engine: Engine; port: string }> {
  const engine = p.start(["--listen", address, "--poll", "200ms", ...args], env);
  let log = "";
  engine.child.stderr.on("data", (text: string) => (log += text));
  engine.child.stdout.on("data", (text: string) => (log += text));
  const port = await until(`the engine to listen: ${log}`, () => {
    const found = /^Workers connect to: (?:\w+:\/\/\S*:(\d+)|unix:\S+)/m.exec(log);
    return found ? (found[1] ?? "0") : undefined;
  });
  return { engine, port };
}

test("with a real engine: executes, survives its death, and stops", async (t) => {
  const p = new Project(t, "");
  assert.equal((await p.cli("migrate")).code, 0);
  const env = { TASK_ENGINE_LISTEN_TOKEN: "te_secret_of_the_test" };
  const { engine, port } = await listening(p, "127.0.0.1:0", ["--heartbeat", "200ms", "--dead-after", "2s"], env);
  const remote = connect(t, "durable", p.folder, { ...env, TASK_ENGINE_CONNECT: `tcp://127.0.0.1:${port}` });
  const ship = await p.create("ship", { item: "cup" });
  assert.equal((await p.result(ship)).result, "parcel of cup");
  const killed = await p.create("killed");
  await until("the start of the task", () => p.read("effects.txt").includes("waiting") || undefined);
  engine.child.kill("SIGKILL");
  await engine.ended;
  await listening(p, `127.0.0.1:${port}`, ["--heartbeat", "200ms", "--dead-after", "2s"], env);
  assert.deepEqual((await p.result(killed)).result, ["charge", 2]);
  assert.equal(p.read("effects.txt").match(/charge/g)?.length, 1);
  remote.child.kill("SIGTERM");
  assert.equal(await remote.ended, 0);
  const wrong = connect(t, "durable", p.folder, {
    TASK_ENGINE_LISTEN_TOKEN: "wrong",
    TASK_ENGINE_CONNECT: `tcp://127.0.0.1:${port}`,
  });
  assert.equal(await wrong.ended, 1);
  assert.match(wrong.stderr(), /ConnectionRefused: the engine refused this worker: /);
});

test("over a Unix socket and over TLS", async (t) => {
  const p = new Project(t, "");
  assert.equal((await p.cli("migrate")).code, 0);
  writeFileSync(p.path("openssl.cnf"), "[req]\ndistinguished_name=dn\n[dn]\n");
  const made = await run(
    "openssl",
    [
      "req",
      "-x509",
      "-newkey",
      "ec",
      "-pkeyopt",
      "ec_paramgen_curve:prime256v1",
      "-nodes",
      "-days",
      "2",
      "-keyout",
      "key.pem",
      "-out",
      "cert.pem",
      "-subj",
      "/CN=localhost",
      "-addext",
      "subjectAltName=DNS:localhost,IP:127.0.0.1",
      "-addext",
      "basicConstraints=critical,CA:FALSE",
    ],
    p.folder,
  );
  assert.equal(made.code, 0, made.stderr);
  const env = { TASK_ENGINE_LISTEN_TOKEN: "te_secret_of_the_test" };
  const { port } = await listening(
    p,
    "127.0.0.1:0",
    ["--instance", "tls", "--listen-certificate", "cert.pem", "--listen-key", "key.pem"],
    env,
  );
  const tls = connect(t, "durable", p.folder, {
    ...env,
    TASK_ENGINE_CONNECT: `tls://localhost:${port}`,
    TASK_ENGINE_CONNECT_CA: p.path("cert.pem"),
  });
  assert.equal((await p.result(await p.create("ship", { item: "cup" }))).result, "parcel of cup");
  tls.child.kill("SIGTERM");
  assert.equal(await tls.ended, 0);
  const distrusts = connect(t, "durable", p.folder, { ...env, TASK_ENGINE_CONNECT: `tls://localhost:${port}` });
  await until(
    "the refused certificate",
    () => /cannot connect to tls:.*self-signed certificate/.test(distrusts.stderr()) || undefined,
  );
  distrusts.child.kill("SIGTERM");
  assert.equal(await distrusts.ended, 0);
  await listening(p, `unix:${p.path("workers.sock")}`, ["--instance", "unix"]);
  const unix = connect(t, "check", p.folder, { TASK_ENGINE_CONNECT: `unix:${p.path("workers.sock")}` });
  assert.equal((await p.result(await p.create("check.echo", { value: 1 }))).result, 1);
  unix.child.kill("SIGTERM");
  assert.equal(await unix.ended, 0);
});
