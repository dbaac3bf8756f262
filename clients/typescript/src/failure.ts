/** Errors of tasks, as their answers. */

import { milliseconds } from "./duration.js";
import { NoRetry, InvalidParameters, RateLimited, RetryAfter, Snooze } from "./errors.js";
import { inspect } from "node:util";

/** A line of a worker may be 64 KiB long if its class allows only short results. */
const BYTES_MAX = 60_000;

/** The fields of the answer for what a task has thrown. */
export function failure(thrown: unknown): Record<string, unknown> {
  if (thrown instanceof Snooze || thrown instanceof RateLimited) {
    return {
      [thrown instanceof Snooze ? "snooze" : "rate_limited"]: timeOf(thrown),
      message: thrown.message.slice(0, 1000),
    };
  }
  if (thrown instanceof NoRetry) return failed(thrown.cause ?? thrown, false);
  if (thrown instanceof RetryAfter) return failed(thrown.cause ?? thrown, timeOf(thrown));
  return failed(thrown, thrown instanceof InvalidParameters ? false : undefined);
}

function timeOf({ time }: RetryAfter | Snooze | RateLimited): string {
  return `${milliseconds(time) ?? 0}ms`;
}

function failed(thrown: unknown, retry: false | string | undefined): Record<string, unknown> {
  const whole = described(thrown);
  const fields = (error: typeof whole) => ({ error, ...(retry === undefined ? {} : { retry }) });
  if (Buffer.byteLength(JSON.stringify(whole)) <= BYTES_MAX) return fields(whole);
  const { exception, message, backtrace } = whole;
  return fields({ exception: exception.slice(0, 200), message: cut(message, 4000), backtrace: cut(backtrace, 4000) });
}

function cut(text: string, length: number): string {
  return text.length > length ? `${text.slice(0, length)}…` : text;
}

function described(thrown: unknown): { exception: string; message: string; backtrace: string } {
  if (!(thrown instanceof Error)) {
    const message = typeof thrown === "string" ? thrown : inspect(thrown, { depth: 3 });
    return { exception: "Error", message, backtrace: "" };
  }
  try {
    const lines = [frames(thrown)];
    for (let cause = thrown.cause, depth = 0; cause !== undefined && depth < 5; depth++) {
      lines.push(
        cause instanceof Error
          ? `Caused by ${nameOf(cause)}: ${cause.message}\n${frames(cause)}`
          : `Caused by ${inspect(cause)}`,
      );
      cause = cause instanceof Error ? cause.cause : undefined;
    }
    return { exception: nameOf(thrown), message: thrown.message, backtrace: lines.join("\n") };
  } catch {
    return { exception: "Error", message: "an error that cannot be read", backtrace: "" };
  }
}

/** Many classes of errors do not set their `name`. */
function nameOf(error: Error): string {
  return error.name !== "Error" && error.name !== "" ? error.name : error.constructor.name;
}

/** Frames of this package and of the event loop below it say nothing about the task. */
const OWN = new URL(".", import.meta.url).href;

/** The stack without the message, which may have several lines. */
function frames(error: Error): string {
  const stack = error.stack ?? "";
  const begin = stack.search(/^ {4}at /m);
  if (begin < 0) return "";
  const all = stack.slice(begin).split("\n");
  const isOwn = (frame: string) => frame.includes(OWN);
  const last = all.findLastIndex((frame) => !isOwn(frame) && !frame.includes("node:"));
  return all.filter((frame, at) => at <= last && !isOwn(frame)).join("\n");
}
