/** What the tests share: folders, engines, and workers that are driven line by line. */

import { spawn, type ChildProcessWithoutNullStreams } from "node:child_process";
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import type { TestContext } from "node:test";
import { setTimeout as pause } from "node:timers/promises";

function required(name: string): string {
  const value = process.env[name];
  if (!value) throw new Error(`set ${name}, or run ./test`);
  return value;
}

export const BINARY = required("TASK_ENGINE_TEST_BINARY");
export const DATABASE_URL = required("TASK_ENGINE_TEST_DATABASE_URL");

/** A compiled worker of tests/workers. */
export function worker(name: string): string {
  return new URL(`./workers/${name}.js`, import.meta.url).pathname;
}

/** A folder that is removed after the test. */
export function folder(t: TestContext): string {
  const path = mkdtempSync(join(tmpdir(), "task-engine-ts-"));
  t.after(() => {
    rmSync(path, { recursive: true, force: true });
  });
  return path;
}

/** Polls until the condition holds; fails the test after 30 s. */
export async function until<T>(what: string, check: () => T | undefined | Promise<T | undefined>): Promise<T> {
  for (const end = Date.now() + 30_000; ;) {
    const found = await check();
    if (found !== undefined && found !== false) return found;
    if (Date.now() > end) throw new Error(`not within 30 s: ${what}`);
    await pause(20);
  }
}

export interface Ended {
  code: number | null;
  stdout: string;
  stderr: string;
}

/** Runs a program to its end. */
export async function run(
  command: string,
  args: string[],
  cwd: string,
  env: Record<string, string> = {},
): Promise<Ended> {
  const child = spawn(command, args, { cwd, env: { ...process.env, ...env } });
  child.stdin.end();
  return ending(child);
}

async function ending(child: ChildProcessWithoutNullStreams): Promise<Ended> {
  let [stdout, stderr] = ["", ""];
  child.stdout.setEncoding("utf8").on("data", (text: string) => (stdout += text));
  child.stderr.setEncoding("utf8").on("data", (text: string) => (stderr += text));
  const code = await new Promise<number | null>((resolve, reject) =>
    child.once("close", resolve).once("error", reject),
  );
  return { code, stdout, stderr };
}

export interface Waited {
  id: number;
  status: string;
  result: unknown;
  error: { exception: string; message: string; backtrace: string[] } | null;
}

/** An engine that the test has started. */
export interface Engine {
  child: ChildProcessWithoutNullStreams;
  ended: Promise<Ended>;
}

/** A folder with task-engine.toml, and a database: SQLite, unless it has a URL. */
export class Project {
  readonly folder: string;
  readonly database: string;
  readonly #t: TestContext;

  constructor(t: TestContext, toml: string, database?: string) {
    this.#t = t;
    this.folder = folder(t);
    this.database = database ?? `sqlite:${join(this.folder, "tasks.db")}`;
    if (toml !== "") writeFileSync(join(this.folder, "task-engine.toml"), toml);
  }

  path(name: string): string {
    return join(this.folder, name);
  }

  read(name: string): string {
    return existsSync(this.path(name)) ? readFileSync(this.path(name), "utf8") : "";
  }

  cli(...args: string[]): Promise<Ended> {
    return run(BINARY, [...args, "--database", this.database], this.folder);
  }

  async create(name: string, parameters: object = {}, ...args: string[]): Promise<number> {
    const { stdout, stderr } = await this.cli("create", name, JSON.stringify(parameters), ...args);
    const id = Number(stdout);
    if (!(id > 0)) throw new Error(stderr);
    return id;
  }

  /** Waits until these tasks have ended. */
  async wait(...ids: number[]): Promise<Waited[]> {
    const { stdout, stderr } = await this.cli("wait", ...ids.map(String), "--timeout", "60s");
    const found = new Map<number, Waited>();
    for (const line of stdout.split("\n").filter(Boolean)) {
      const task = JSON.parse(line) as Waited;
      found.set(task.id, task);
    }
    return ids.map((id) => {
      const task = found.get(id);
      if (!task) throw new Error(`task ${id}: ${stdout} ${stderr}`);
      return task;
    });
  }

  /** Waits for one task. */
  async result(id: number): Promise<Waited> {
    const [task] = await this.wait(id);
    if (!task) throw new Error(`no task ${id}`);
    return task;
  }

  /** Starts an engine, which is killed after the test. */
  start(args: string[] = [], env: Record<string, string> = {}): Engine {
    const child = spawn(BINARY, ["start", "--database", this.database, ...args], {
      cwd: this.folder,
      env: { ...process.env, ...env },
    });
    child.stdin.end();
    const ended = ending(child);
    this.#t.after(async () => {
      child.kill("SIGKILL");
      await ended;
    });
    return { child, ended };
  }
}

/** A worker whose engine is the test. */
export class Piped {
  readonly child: ChildProcessWithoutNullStreams;
  readonly ended: Promise<number | null>;
  stderr = "";
  readonly #lines: AsyncIterator<string>;

  constructor(t: TestContext, name: string, env: Record<string, string> = {}) {
    const child = spawn(process.execPath, [worker(name)], { env: { ...process.env, ...env } });
    this.child = child;
    this.#lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
    child.stderr.setEncoding("utf8").on("data", (text: string) => (this.stderr += text));
    this.ended = new Promise((resolve) => child.once("close", resolve));
    t.after(() => child.kill("SIGKILL"));
  }

  send(...lines: (object | string)[]): void {
    this.child.stdin.write(lines.map((line) => `${typeof line === "string" ? line : JSON.stringify(line)}\n`).join(""));
  }

  task(id: string, name: string, parameters: object = {}, more: object = {}): void {
    this.send({
      id,
      task_id: 7,
      attempt: 2,
      retry_number: 1,
      class: name,
      correlation_id: "flow",
      parameters,
      ...more,
    });
  }

  /** The next line of the worker. */
  async next(): Promise<Record<string, unknown>> {
    const { value, done } = (await this.#lines.next()) as IteratorResult<string, undefined>;
    if (done) throw new Error(`the worker closed its output: ${this.stderr}`);
    return JSON.parse(value) as Record<string, unknown>;
  }

  /** Closes its input, and returns the lines that are left. */
  async end(): Promise<{ code: number | null; lines: Record<string, unknown>[] }> {
    this.child.stdin.end();
    const lines = [];
    for (;;) {
      const { value, done } = (await this.#lines.next()) as IteratorResult<string, undefined>;
      if (done) break;
      lines.push(JSON.parse(value) as Record<string, unknown>);
    }
    return { code: await this.ended, lines };
  }
}
