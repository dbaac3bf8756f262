/** One attempt of a task: its context, its requests and its answer. */

import { format } from "node:util";
import * as check from "./check.js";
import { childOutcome, childRequest, type ChildAnswer } from "./children.js";
import type { CallOptions, ChildOutcome, Context, Dependency } from "./context.js";
import { resultOf } from "./dependencies.js";
import type { Duration } from "./duration.js";
import { Cancelled, ResultNotJson, ResultTooLong, TaskEngineError, WaitTimedOut } from "./errors.js";
import { failure } from "./failure.js";
import { joined } from "./log.js";
import type { LineOutput } from "./output.js";
import type { AnyTask, ChildTask, TaskDefinition } from "./task.js";

/** The line of a task. */
export interface TaskLine {
  id: string;
  task_id: number;
  attempt: number;
  retry_number: number;
  class: string;
  correlation_id: string;
  parameters: unknown;
  dependencies?: Record<string, Dependency>;
}

/** A line of the engine about an attempt. */
export type Answer = Record<string, unknown>;

/** The requests that may wait for an answer: less than the 100 of the engine. */
const REQUESTS_MAX = 64;
const RESULT_BYTES_MAX = 1_048_576;

interface Request {
  kind: "step" | "sleep" | "wait" | "call";
  line: string;
  settle: (answer: Answer) => void;
}

/** What the attempts of a session share. */
export interface AttemptHost {
  readonly output: LineOutput;
  /** The engine sends nothing more. */
  readonly isClosed: boolean;
  ended(attempt: Attempt): void;
}

export class Attempt implements Context {
  readonly taskId: number;
  readonly attempt: number;
  readonly retryNumber: number;
  readonly class: string;
  readonly correlationId: string;
  readonly dependencies: Readonly<Record<string, Dependency>>;
  cancelled = false;

  readonly id: string;
  readonly #host: AttemptHost;
  /** The beginning of each line: `{"id":"17.1",`. */
  readonly #head: string;
  /** The attempt has its answer, or needs none. Nothing more is sent for it. */
  #isOver = false;
  #abort: AbortController | undefined;
  #log: string[] = [];
  /** Sent, in the order in which the engine answers. */
  #pending: Request[] = [];
  #unsent: Request[] = [];
  #runningSteps = 0;

  constructor(line: TaskLine, host: AttemptHost) {
    this.#host = host;
    this.id = line.id;
    this.#head = `{"id":${JSON.stringify(line.id)},`;
    this.taskId = line.task_id;
    this.attempt = line.attempt;
    this.retryNumber = line.retry_number;
    this.class = line.class;
    this.correlationId = line.correlation_id;
    this.dependencies = line.dependencies ?? {};
  }

  /** Runs the task and answers. */
  async run(definition: TaskDefinition, parameters: unknown): Promise<void> {
    try {
      const result = await definition.run(this, parameters);
      const json = resultJson(result, `the result of ${this.class}`, definition.resultBytes);
      this.#answer(`"result":${json}}`);
    } catch (error) {
      this.fail(error);
    }
  }

  fail(error: unknown): void {
    this.#answer(JSON.stringify(failure(error)).slice(1));
  }

  /** The engine asks it to end. */
  cancel(): void {
    if (this.cancelled || this.#isOver) return;
    this.cancelled = true;
    this.#abort?.abort(new Cancelled());
    // Code that waits for `ctx.signal` may answer first. A request that waits for the engine, such
    // as a sleep, may take longer than the grace of the class.
    setImmediate(() => {
      if (this.#pending.length > 0 && this.#runningSteps === 0) this.fail(new Cancelled());
    });
  }

  /** It has ended for the engine: nothing is sent any more. */
  abandon(): void {
    if (this.#isOver) return;
    this.#isOver = true;
    // Its promises are never settled, so that no code after them runs.
    this.#pending = this.#unsent = [];
    this.#log = [];
    this.#host.ended(this);
  }

  /** The connection is lost, and with it the attempt. */
  lose(): void {
    this.abandon();
    if (this.cancelled) return;
    this.cancelled = true;
    this.#abort?.abort(new Cancelled("the connection to the engine is lost"));
  }

  /** The standard input is closed: requests get no answer any more. */
  inputClosed(): void {
    if (this.#pending.length > 0) this.abandon();
  }

  /** A line about this attempt. */
  receive(answer: Answer): void {
    if (typeof answer.ended === "string") {
      this.abandon();
      return;
    }
    const [first] = this.#pending;
    // Anything else is of a later version of the protocol.
    if (!first || !Object.hasOwn(answer, first.kind)) return;
    this.#pending.shift();
    const next = this.#unsent.shift();
    if (next) this.#send(next);
    first.settle(answer);
  }

  resultOf<Result>(name: string | number): Result {
    return resultOf(this.dependencies, name) as Result;
  }

  log(...values: unknown[]): void {
    this.#throwIfCancelled();
    if (this.#isOver) return;
    this.#log.push(typeof values[0] === "string" && values.length === 1 ? values[0] : format(...values));
    if (this.#log.length === 1)
      this.#host.output.beforeSend(() => {
        this.#sendLog();
      });
  }

  progress(percent: number, message?: string): void {
    check.between(-Infinity, Infinity)(percent, "progress: the percentage");
    this.#throwIfCancelled();
    if (this.#isOver) return;
    this.#sendLog();
    this.#line(
      JSON.stringify({
        progress: percent,
        ...(message === undefined ? {} : { message: message.slice(0, 1024) }),
      }).slice(1),
    );
  }

  get signal(): AbortSignal {
    if (!this.#abort) {
      this.#abort = new AbortController();
      if (this.cancelled) this.#abort.abort(new Cancelled());
    }
    return this.#abort.signal;
  }

  whenCancelled(): Promise<void> {
    const { signal } = this;
    if (signal.aborted) return Promise.resolve();
    return new Promise((resolve) => {
      signal.addEventListener(
        "abort",
        () => {
          resolve();
        },
        { once: true },
      );
    });
  }

  async step<Result>(name: string, code: () => Result | Promise<Result>): Promise<Result> {
    const sent = stepName(name, "step");
    if (typeof code !== "function") check.invalid(`step ${sent}`, "the code is not a function");
    const begun = await this.#ask("step", `"step":${sent}}`);
    if (Object.hasOwn(begun, "recorded")) return begun.recorded as Result;
    // Cancelled while it asked.
    if (this.cancelled) return this.#endCancelled();
    this.#runningSteps++;
    let result: unknown;
    try {
      result = await code();
    } finally {
      this.#runningSteps--;
    }
    const json = resultJson(result, `the result of step ${sent}`);
    // The engine records it even if the task was cancelled meanwhile: the code has run.
    const recorded = await this.#ask("step", `"step":${JSON.stringify(begun.step)},"result":${json}}`, true);
    return recorded.recorded as Result;
  }

  async sleep(name: string, time: Duration): Promise<void> {
    const sent = stepName(name, "sleep");
    await this.#ask("sleep", `"sleep":${sent},"for":"${check.duration(time, `sleep ${sent}`) as string}"}`);
  }

  async sleepUntil(name: string, time: Date | string): Promise<void> {
    const sent = stepName(name, "sleep");
    await this.#ask("sleep", `"sleep":${sent},"until":${JSON.stringify(check.time(time, `sleep ${sent}`))}}`);
  }

  async waitFor<Payload>(name: string, timeout: Duration): Promise<Payload> {
    const sent = stepName(name, "waitFor");
    const answer = await this.#ask(
      "wait",
      `"wait":${sent},"timeout":"${check.duration(timeout, `waitFor ${sent}: the timeout`) as string}"}`,
    );
    if (answer.timed_out === true) throw new WaitTimedOut(String(answer.wait));
    return answer.signal as Payload;
  }

  async call<Result>(
    task: string | AnyTask<Result>,
    parameters: object = {},
    options: CallOptions = {},
  ): Promise<Result> {
    const [child] = await this.callAll([{ ...options, class: task, parameters }]);
    if (child?.status !== "stopped") throw child?.error ?? new TaskEngineError("the engine returned no result");
    return child.result;
  }

  async callAll<Result>(children: readonly ChildTask<Result>[]): Promise<ChildOutcome<Result>[]> {
    if (!Array.isArray(children)) check.invalid("callAll", `${check.shown(children)} is not a list of tasks`);
    if (children.length === 0) return [];
    const tasks = children.map((child, at) => childRequest(child as ChildTask, `child ${at + 1}`));
    const [name, json] = [stepName(tasks[0]?.class, "call"), check.toJson(tasks)];
    const answer = await this.#ask("call", `"call":${name},"tasks":${json}}`);
    return (answer.results as ChildAnswer[]).map((child) => childOutcome<Result>(child));
  }

  /** Sends a request, and returns its answer, or never. */
  #ask(kind: Request["kind"], rest: string, evenIfCancelled = false): Promise<Answer> {
    return new Promise((resolve) => {
      if (this.#isOver) return;
      if (this.#host.isClosed) {
        this.abandon();
        return;
      }
      const request = { kind, line: rest, settle: resolve };
      if (this.cancelled) {
        if (evenIfCancelled) this.#send(request);
        void this.#endCancelled();
      } else if (this.#pending.length < REQUESTS_MAX) this.#send(request);
      else this.#unsent.push(request);
    });
  }

  #send(request: Request): void {
    this.#pending.push(request);
    this.#sendLog();
    this.#line(request.line);
  }

  #endCancelled(): Promise<never> {
    // Another step may run: its result is recorded before the attempt ends.
    if (this.#runningSteps === 0) this.fail(new Cancelled());
    return new Promise(() => undefined);
  }

  #answer(rest: string): void {
    if (this.#isOver) return;
    this.#sendLog();
    this.#line(rest);
    this.abandon();
  }

  #throwIfCancelled(): void {
    if (this.cancelled && !this.#isOver) throw new Cancelled();
  }

  #sendLog(): void {
    if (this.#log.length === 0 || this.#isOver) return;
    for (const list of joined(this.#log)) this.#line(`"log":${list}}`);
    this.#log = [];
  }

  #line(rest: string): void {
    this.#host.output.line(this.#head + rest);
  }
}

/** The name of a durable call as JSON. */
function stepName(name: unknown, call: string): string {
  check.name(name, `${call}: the name`);
  if ((name as string).includes("#"))
    check.invalid(`${call}: the name`, `${check.shown(name)} contains #, which numbers repeated names; leave it out`);
  return JSON.stringify(name);
}

function resultJson(result: unknown, what: string, bytesMax = RESULT_BYTES_MAX): string {
  let json: string;
  try {
    json = check.toJson(result);
  } catch (error) {
    throw new ResultNotJson(`${what} is not JSON: ${(error as Error).message}`, { cause: error });
  }
  // A character has at most three bytes.
  if (json.length * 3 > bytesMax && Buffer.byteLength(json) > bytesMax) {
    throw new ResultTooLong(`${what} is longer than ${bytesMax} bytes; keep the data elsewhere and return a reference`);
  }
  return json;
}
