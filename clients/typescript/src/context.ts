/** What a task gets from its worker, besides its parameters. */

import type { Duration } from "./duration.js";
import type { ChildFailed, RecordedError } from "./errors.js";
import type { ChildTask } from "./task.js";

/** How a task ended that this one depends on. */
export interface Dependency {
  id: number;
  status: string;
  result?: unknown;
  error?: RecordedError | string;
  result_omitted?: true;
}

/** How a child task ended. `removed`: it was deleted. */
export type ChildOutcome<Result = unknown> =
  | { taskId: number; status: "stopped"; result: Result }
  | { taskId: number; status: "failed" | "cancelled" | "removed"; error: ChildFailed };

/** Where a child task waits. What is missing is the option of its class. */
export interface CallOptions {
  queue?: string;
  priority?: number;
}

/**
 * The context of an attempt.
 *
 * The durable calls are `step`, `sleep`, `sleepUntil`, `waitFor`, `call` and `callAll`. If one of
 * them ends the attempt, because the task waits for long or was cancelled, its promise **never
 * settles**: no code after it runs, not even in `catch` and `finally`. The next attempt runs the
 * function from its beginning.
 */
export interface Context {
  readonly taskId: number;
  /** From 1. */
  readonly attempt: number;
  /** From 0. */
  readonly retryNumber: number;
  readonly class: string;
  readonly correlationId: string;
  /** The tasks that this one depends on, by name (or by id, without a name). */
  readonly dependencies: Readonly<Record<string, Dependency>>;

  /** The result of a task that this one depends on. An error, if it did not succeed. */
  resultOf<Result = unknown>(name: string | number): Result;

  /** Adds lines to the log of the task. Formats its arguments as `console.log` does. */
  log(...values: unknown[]): void;
  /** Reports progress in percent. */
  progress(percent: number, message?: string): void;

  /** True when the task should end: it was cancelled, or its time is over. */
  readonly cancelled: boolean;
  /** Aborts when the task should end. Pass it to `fetch`, to timers and so on. */
  readonly signal: AbortSignal;
  /** Resolves when the task should end. */
  whenCancelled(): Promise<void>;

  /** Runs the code once and records its result. Later attempts get the recorded result. */
  step<Result>(name: string, code: () => Result | Promise<Result>): Promise<Result>;
  /** Sleeps, without using a worker if it is long. */
  sleep(name: string, time: Duration): Promise<void>;
  sleepUntil(name: string, time: Date | string): Promise<void>;
  /** The payload of the signal with this name, or the error `WaitTimedOut`. */
  waitFor<Payload = unknown>(name: string, timeout: Duration): Promise<Payload>;
  /** Creates a child task and returns its result, or throws `ChildFailed`. */
  call<Result = unknown>(task: ChildTask<Result>["class"], parameters?: object, options?: CallOptions): Promise<Result>;
  /** Creates child tasks, and returns how each of them ended. */
  callAll<Result = unknown>(children: readonly ChildTask<Result>[]): Promise<ChildOutcome<Result>[]>;
}
