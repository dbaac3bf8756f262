/** The errors of this package. `instanceof TaskEngineError` finds all of them. */

import { inspect } from "node:util";
import { milliseconds, type Duration } from "./duration.js";

/** The base class of every error of this package. */
export class TaskEngineError extends Error {
  /** A SQLSTATE, an HTTP status, or the name of the error. */
  readonly code: string;

  constructor(message: string, options?: { code?: string; cause?: unknown }) {
    super(message, options?.cause === undefined ? undefined : { cause: options.cause });
    this.name = new.target.name;
    this.code = options?.code ?? new.target.name;
  }
}

/** An argument is invalid. Nothing was sent. The message says what to write instead. */
export class InvalidArgument extends TaskEngineError {}

/** The database refused the call. `code` is the SQLSTATE, `cause` the error of the driver. */
export class DatabaseError extends TaskEngineError {}

/** The fields of a problem (RFC 9457), as the HTTP API answers them. */
export interface Problem {
  status?: number;
  title?: string;
  detail?: string;
  pointer?: string;
  parameter?: string;
  outcome?: string;
}

/** The HTTP API refused the request (`status` is its status), or did not answer (`status` is 0). */
export class HttpError extends TaskEngineError {
  readonly status: number;
  readonly problem: Problem;

  constructor(message: string, status: number, problem: Problem = {}, cause?: unknown) {
    super(message, { code: status === 0 ? "NoAnswer" : String(status), cause });
    this.status = status;
    this.problem = problem;
  }
}

/** The engine refused the connection of this worker, for example because of its token. */
export class ConnectionRefused extends TaskEngineError {}

/** The signal did not arrive in time: see `ctx.waitFor`. */
export class WaitTimedOut extends TaskEngineError {
  readonly signal: string;

  constructor(signal: string) {
    super(`signal ${JSON.stringify(signal)} did not arrive in time`);
    this.signal = signal;
  }
}

/** The error of a task, as the engine records it. */
export interface RecordedError {
  exception: string;
  message: string;
  backtrace?: string | string[];
}

/** A child task did not succeed: see `ctx.call`. */
export class ChildFailed extends TaskEngineError {
  readonly taskId: number;
  /** `failed`, `cancelled` or `removed`. */
  readonly status: string;
  readonly error: RecordedError;

  constructor(taskId: number, status: string, error: RecordedError) {
    super(error.message);
    this.taskId = taskId;
    this.status = status;
    this.error = error;
  }
}

/** The task was cancelled, or its time is over. It is the reason of `ctx.signal`. */
export class Cancelled extends TaskEngineError {
  constructor(message = "the task was cancelled, or its time is over") {
    super(message);
  }
}

/** The parameters of a task do not fit its schema. The task is not retried. */
export class InvalidParameters extends TaskEngineError {}

/** A result is not JSON. */
export class ResultNotJson extends TaskEngineError {}

/** A result is longer than `resultBytes`. */
export class ResultTooLong extends TaskEngineError {}

/** What a wrapper adds to an error that is thrown in a task. */
abstract class Wrapper extends TaskEngineError {
  constructor(reason: unknown) {
    const message = reason instanceof Error ? reason.message : typeof reason === "string" ? reason : inspect(reason);
    super(message, { cause: reason instanceof Error ? reason : undefined });
  }
}

/** A wrapper with a time. */
abstract class TimedWrapper extends Wrapper {
  readonly time: Duration;

  constructor(time: Duration, reason: unknown) {
    super(reason);
    if (milliseconds(time) === undefined) {
      throw new InvalidArgument(
        `${new.target.name}: ${JSON.stringify(time)} is not a duration; write "30s" or a number of seconds`,
      );
    }
    this.time = time;
  }
}

/** Throw it in a task: the task fails and is not retried. */
export class NoRetry extends Wrapper {
  constructor(reason: unknown) {
    super(reason);
  }
}

/** Throw it in a task: the attempt fails and is retried after this time. */
export class RetryAfter extends TimedWrapper {
  constructor(time: Duration, reason: unknown = "retry later") {
    super(time, reason);
  }
}

/** Throw it in a task: the task runs again after this time, and uses no retry. */
export class Snooze extends TimedWrapper {
  constructor(time: Duration, reason: unknown = "postponed") {
    super(time, reason);
  }
}

/** As `Snooze`, and no other task with the same limit keys starts for this time. */
export class RateLimited extends TimedWrapper {
  constructor(time: Duration, reason: unknown = "rate limited") {
    super(time, reason);
  }
}
