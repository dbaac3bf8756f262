/** The options of a class, as TypeScript has them and as the announcement has them. */

import * as check from "./check.js";
import type { Duration } from "./duration.js";

/** When a failed task is retried. What is missing is the default of the engine. */
export interface RetryRule {
  /** How many retries at most. */
  maximum?: number;
  /** The wait before the first retry. */
  firstDelay?: Duration;
  /** By how much each wait is longer than the one before. */
  factor?: number;
  /** The longest wait. */
  cap?: Duration;
  /** The part of each wait, from 0 to 1, that is random. */
  jitter?: number;
  /** Whether retries are counted anew after an attempt that recorded a step. */
  restartAfterProgress?: boolean;
}

/** `"100/1s"`, or the same as an object. */
export type Rate = string | { max: number; per: Duration; key?: string; even?: boolean };

/** How many tasks run at a time, for each value of the parameter `key`. */
export interface Limit {
  max?: number;
  key?: string;
  rate?: Rate;
  inOrder?: boolean;
  weights?: Record<string, number>;
}

/** The options of a class. Those of `task-engine.toml` take precedence over them. */
export interface ClassOptions {
  /** How many retries at most: short for `retry: { maximum }`. */
  retries?: number;
  retry?: RetryRule;
  /** The longest run time of an attempt. */
  timeout?: Duration;
  /** The time from a cancellation to the end of the process. */
  grace?: Duration;
  queue?: string;
  priority?: number;
  /** The longest result, in bytes of JSON. */
  resultBytes?: number;
  /** How many log lines of an attempt are kept. */
  logLines?: number;
  /** Parameters that are not shown, like `login.password`. */
  secret?: string | string[];
  /** How many run at a time, over all engines. */
  limit?: number | Limit;
  rate?: Rate;
  /** One at a time, in the order of their creation; with a key, for each of its values. */
  inOrder?: boolean | { key?: string };
  /** The parameter whose values share the workers equally. */
  fair?: string;
  /** Further limits, with names of their own. */
  limits?: (Limit & { name: string })[];
}

const count = check.whole(1, 10_000);

const rateTable = check.object({
  max: ["max", check.whole(1, 1_000_000)],
  per: ["per", check.positiveDuration],
  key: ["key", check.text],
  even: ["even", check.boolean],
});

const rate: check.Check = (value, where) => {
  if (typeof value === "string") {
    const example = '"100/1s"';
    const fits = /^\s*\d+\s*\/\s*\S/.test(value);
    return fits ? value : check.invalid(where, `${check.shown(value)} is not a rate; write ${example}`);
  }
  const sent = rateTable(value, where);
  if (sent.max === undefined || sent.per === undefined)
    check.invalid(where, 'a rate needs max and per, like { max: 100, per: "1s" }');
  return sent;
};

const weights: check.Check = (value, where) => {
  const found = check.isObject(value)
    ? value
    : check.invalid(where, `${check.shown(value)} is not an object like { acme: 3 }`);
  return Object.fromEntries(
    Object.entries(found).map(([key, one]) => [key, check.whole(1, 1000)(one, `${where}: ${key}`)]),
  );
};

const limitFields: check.Fields = {
  max: ["max", count],
  key: ["key", check.text],
  rate: ["rate", rate],
  inOrder: ["in_order", check.boolean],
  weights: ["weights", weights],
};

const namedLimit = check.object({ ...limitFields, name: ["name", check.name] });

const retry = check.object({
  maximum: ["maximum", check.whole(0, 1_000_000)],
  firstDelay: ["first_delay", check.positiveDuration],
  factor: ["factor", check.between(1, 1000)],
  cap: ["cap", check.positiveDuration],
  jitter: ["jitter", check.between(0, 1)],
  restartAfterProgress: ["restart_after_progress", check.boolean],
});

const either =
  (type: "number" | "boolean", simple: check.Check, table: check.Check): check.Check =>
  (value, where) =>
    (typeof value === type ? simple : table)(value, where);

const CLASS: check.Fields = {
  retries: ["retries", check.whole(0, 1_000_000)],
  retry: ["retry", retry],
  timeout: ["timeout", check.positiveDuration],
  grace: ["grace", check.positiveDuration],
  queue: ["queue", check.name],
  priority: ["priority", check.priority],
  resultBytes: ["result_bytes", check.whole(1, 1_048_576)],
  logLines: ["log_lines", check.whole(0, 1000)],
  secret: ["secret", check.oneOrMore(check.text)],
  limit: ["limit", either("number", count, check.object(limitFields))],
  rate: ["rate", rate],
  inOrder: ["in_order", either("boolean", check.boolean, check.object({ key: ["key", check.text] }))],
  fair: ["fair", check.text],
  limits: ["limits", check.list(namedLimit)],
};

/** The options of a class as its announcement has them. `own` are options that are not sent. */
export function announcedOptions(options: object, where: string, own: string[]): Record<string, unknown> {
  const known: check.Fields = { ...CLASS };
  for (const name of own) known[name] = [name, (value) => value];
  const sent = check.object(known)(options, where);
  for (const name of own) Reflect.deleteProperty(sent, name);
  const { retries, ...others } = sent;
  if (retries === undefined) return others;
  const rule = (others.retry ?? {}) as Record<string, unknown>;
  if (rule.maximum !== undefined) check.invalid(where, "give `retries` or `retry.maximum`, not both");
  return { ...others, retry: { maximum: retries, ...rule } };
}

/** A retry rule of one task, as its context has it. */
export const retryOverride = check.object({
  maximum: ["maximum", check.whole(0, 1_000_000)],
  firstDelay: ["first_delay_ms", check.durationMs],
  factor: ["factor", check.between(0, 1_000_000)],
  cap: ["cap_ms", check.durationMs],
  jitter: ["jitter", check.between(0, 1)],
  restartAfterProgress: ["restart_after_progress", check.boolean],
});
