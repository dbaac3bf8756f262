/** Runs tasks in tests: a context without an engine. */

import { format } from "node:util";
import { childRequest } from "./children.js";
import * as check from "./check.js";
import type { CallOptions, ChildOutcome, Context, Dependency } from "./context.js";
import { resultOf } from "./dependencies.js";
import type { Duration } from "./duration.js";
import { Cancelled, ChildFailed, WaitTimedOut } from "./errors.js";
import type { AnyTask, ChildTask } from "./task.js";

export interface FakeContextOptions {
  taskId?: number;
  attempt?: number;
  retryNumber?: number;
  class?: string;
  correlationId?: string;
  /** The results of the tasks that it depends on, by name. */
  results?: Record<string, unknown>;
  /** Dependencies in full, for example one that has failed. */
  dependencies?: Record<string, Dependency>;
  /** Results of steps that an earlier attempt recorded. */
  recorded?: Record<string, unknown>;
  /** The payloads of signals by name. A wait for another signal times out. */
  signals?: Record<string, unknown>;
  /** The results of child tasks by class, or functions that return them. Let one throw to fail it. */
  children?: Record<string, unknown>;
}

/** A context for tests. It records what the task does. Sleeps end at once. */
export class FakeContext implements Context {
  readonly taskId: number;
  readonly attempt: number;
  readonly retryNumber: number;
  readonly class: string;
  readonly correlationId: string;
  readonly dependencies: Readonly<Record<string, Dependency>>;

  /** The lines of the log. */
  readonly logs: string[] = [];
  readonly progressReports: { percent: number; message: string | undefined }[] = [];
  /** The names of the steps whose code ran. */
  readonly steps: string[] = [];
  /** The results of all steps by name. */
  readonly recorded: Record<string, unknown>;
  readonly sleeps: { name: string; time: Duration | Date }[] = [];
  readonly waits: { name: string; timeout: Duration }[] = [];
  readonly calls: { class: string; parameters: object }[] = [];

  readonly #abort = new AbortController();
  readonly #signals: Record<string, unknown>;
  readonly #children: Record<string, unknown>;
  readonly #names = new Map<string, number>();

  constructor(options: FakeContextOptions = {}) {
    this.taskId = options.taskId ?? 1;
    this.attempt = options.attempt ?? 1;
    this.retryNumber = options.retryNumber ?? this.attempt - 1;
    this.class = options.class ?? "test";
    this.correlationId = options.correlationId ?? String(this.taskId);
    const succeeded = Object.entries(options.results ?? {}).map(([name, result], at): [string, Dependency] => [
      name,
      { id: at + 1, status: "stopped", result },
    ]);
    this.dependencies = { ...Object.fromEntries(succeeded), ...options.dependencies };
    this.recorded = { ...options.recorded };
    this.#signals = options.signals ?? {};
    this.#children = options.children ?? {};
  }

  /** Asks the task to end. */
  cancel(): void {
    this.#abort.abort(new Cancelled());
  }

  get cancelled(): boolean {
    return this.#abort.signal.aborted;
  }

  get signal(): AbortSignal {
    return this.#abort.signal;
  }

  whenCancelled(): Promise<void> {
    const { signal } = this;
    if (signal.aborted) return Promise.resolve();
    return new Promise((resolve) => {
      signal.addEventListener("abort", () => {
        resolve();
      });
    });
  }

  resultOf<Result>(name: string | number): Result {
    return resultOf(this.dependencies, name) as Result;
  }

  log(...values: unknown[]): void {
    this.signal.throwIfAborted();
    this.logs.push(...format(...values).split("\n"));
  }

  progress(percent: number, message?: string): void {
    this.signal.throwIfAborted();
    this.progressReports.push({ percent, message });
  }

  async step<Result>(name: string, code: () => Result | Promise<Result>): Promise<Result> {
    const unique = this.#durable(name);
    if (!Object.hasOwn(this.recorded, unique)) {
      this.steps.push(unique);
      // As the engine returns it: a Date becomes a text.
      this.recorded[unique] = JSON.parse(check.toJson(await code()));
    }
    return this.recorded[unique] as Result;
  }

  // eslint-disable-next-line @typescript-eslint/require-await -- errors are rejections, as in a worker
  async sleep(name: string, time: Duration): Promise<void> {
    check.duration(time, `sleep ${this.#durable(name)}`);
    this.sleeps.push({ name, time });
  }

  // eslint-disable-next-line @typescript-eslint/require-await -- as above
  async sleepUntil(name: string, time: Date | string): Promise<void> {
    check.time(time, `sleep ${this.#durable(name)}`);
    this.sleeps.push({ name, time });
  }

  // eslint-disable-next-line @typescript-eslint/require-await -- as above
  async waitFor<Payload>(name: string, timeout: Duration): Promise<Payload> {
    const unique = this.#durable(name);
    check.duration(timeout, `waitFor ${unique}: the timeout`);
    this.waits.push({ name: unique, timeout });
    if (!Object.hasOwn(this.#signals, unique)) throw new WaitTimedOut(unique);
    return this.#signals[unique] as Payload;
  }

  async call<Result>(
    task: string | AnyTask<Result>,
    parameters: object = {},
    options: CallOptions = {},
  ): Promise<Result> {
    const [child] = await this.callAll([{ ...options, class: task, parameters }]);
    if (child?.status !== "stopped") throw child?.error ?? new Error("no result");
    return child.result;
  }

  async callAll<Result>(children: readonly ChildTask<Result>[]): Promise<ChildOutcome<Result>[]> {
    const outcomes: ChildOutcome<Result>[] = [];
    for (const [at, child] of children.entries()) {
      const { class: name, parameters } = childRequest(child, `child ${at + 1}`);
      this.#durable(name);
      this.calls.push({ class: name, parameters });
      if (!Object.hasOwn(this.#children, name))
        check.invalid("FakeContext", `it has no result of ${name}; pass children: { ${JSON.stringify(name)}: … }`);
      outcomes.push(await outcome<Result>(this.calls.length, this.#children[name], parameters));
    }
    return outcomes;
  }

  /** The recorded name of a durable call: the second of a name is `name#2`. */
  #durable(name: string): string {
    check.name(name, "the name of a durable call");
    this.signal.throwIfAborted();
    const number = (this.#names.get(name) ?? 0) + 1;
    this.#names.set(name, number);
    return number === 1 ? name : `${name}#${number}`;
  }
}

async function outcome<Result>(taskId: number, result: unknown, parameters: object): Promise<ChildOutcome<Result>> {
  try {
    const found: unknown =
      typeof result === "function" ? await (result as (parameters: object) => unknown)(parameters) : result;
    return { taskId, status: "stopped", result: JSON.parse(check.toJson(found)) as Result };
  } catch (error) {
    const { name, message } = error instanceof Error ? error : new Error(String(error));
    return { taskId, status: "failed", error: new ChildFailed(taskId, "failed", { exception: name, message }) };
  }
}
