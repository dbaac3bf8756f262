/** Checks of arguments, before anything is sent. Each check returns the value as it is sent. */

import { milliseconds } from "./duration.js";
import { InvalidArgument } from "./errors.js";

/** Checks a value; `where` begins the message. */
export type Check = (value: unknown, where: string) => unknown;
/** The fields of an object: the name that is sent, and the check of the value. */
export type Fields = Record<string, [name: string, check: Check]>;

const DURATION_FORMS = 'write "30s", "10m", "1h30m", "3 days" or a number of seconds';
const YEAR_MS = 366 * 86_400_000;

export function invalid(where: string, why: string): never {
  throw new InvalidArgument(`${where}: ${why}`);
}

/** A value in a message. */
export function shown(value: unknown): string {
  let text: string | undefined;
  try {
    text = typeof value === "bigint" ? `${value}n` : JSON.stringify(value);
  } catch {
    // A cycle, for example.
  }
  text ??= typeof value === "function" ? "a function" : String(value);
  return text.length > 80 ? `${text.slice(0, 80)}…` : text;
}

export const name: Check = (value, where) => {
  const fits = typeof value === "string" && value !== "" && Buffer.byteLength(value) <= 200 && !/\p{Cc}/u.test(value);
  return fits
    ? value
    : invalid(where, `${shown(value)} is not a name; write a text of 1 to 200 bytes without control characters`);
};

export const text: Check = (value, where) =>
  typeof value === "string" && value !== "" ? value : invalid(where, `${shown(value)} is not a text`);

export const boolean: Check = (value, where) =>
  typeof value === "boolean" ? value : invalid(where, `${shown(value)} is not true or false`);

export function whole(min: number, max: number): Check {
  return (value, where) =>
    Number.isInteger(value) && (value as number) >= min && (value as number) <= max
      ? value
      : invalid(where, `${shown(value)} is not a whole number from ${min} to ${max}`);
}

export function between(min: number, max: number): Check {
  return (value, where) =>
    typeof value === "number" && value >= min && value <= max
      ? value
      : invalid(where, `${shown(value)} is not a number from ${min} to ${max}`);
}

export const priority = whole(-2_147_483_648, 2_147_483_647);
export const taskId = whole(1, Number.MAX_SAFE_INTEGER);

/** In milliseconds. */
export const durationMs: Check = (value, where) =>
  milliseconds(value) ?? invalid(where, `${shown(value)} is not a duration; ${DURATION_FORMS}`);

/** As the engine reads it. */
export const duration: Check = (value, where) => `${durationMs(value, where) as number}ms`;

/** For options of classes: not 0, and at most a year. */
export const positiveDuration: Check = (value, where) => {
  const ms = durationMs(value, where) as number;
  if (ms === 0 || ms > YEAR_MS) invalid(where, `${shown(value)} is not between 1 ms and a year; ${DURATION_FORMS}`);
  return `${ms}ms`;
};

/** A `Date`, or an ISO 8601 text with its offset. */
export const time: Check = (value, where) => {
  if (value instanceof Date && !Number.isNaN(value.getTime())) return value.toISOString();
  const fits =
    typeof value === "string" &&
    /^\d{4}-\d\d-\d\d[T ]\d\d:\d\d.*(Z|[+-]\d\d(:?\d\d)?)$/i.test(value) &&
    !Number.isNaN(Date.parse(value));
  return fits
    ? value
    : invalid(
        where,
        `${shown(value)} is not a time; pass a Date, or a text with its offset like "2027-01-31T08:00:00Z"`,
      );
};

export function oneOf(...words: string[]): Check {
  return (value, where) =>
    words.includes(value as string) ? value : invalid(where, `${shown(value)} is not one of ${words.join(", ")}`);
}

export function list(check: Check): Check {
  return (value, where) =>
    Array.isArray(value)
      ? value.map((one, at) => check(one, `${where}[${at}]`))
      : invalid(where, `${shown(value)} is not a list`);
}

/** One value, or a list of them. */
export function oneOrMore(check: Check): Check {
  return (value, where) => (Array.isArray(value) ? list(check)(value, where) : [check(value, where)]);
}

export function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** An object with these fields and no others. A field that is `undefined` counts as missing. */
export function object(fields: Fields): (value: unknown, where: string) => Record<string, unknown> {
  return (value, where) => {
    if (!isObject(value)) invalid(where, `${shown(value)} is not an object`);
    const sent: Record<string, unknown> = {};
    for (const [key, one] of Object.entries(value)) {
      if (one === undefined) continue;
      const field = Object.hasOwn(fields, key) ? fields[key] : undefined;
      if (!field) invalid(where, `unknown option ${shown(key)}${didYouMean(key, Object.keys(fields))}`);
      sent[field[0]] = field[1](one, `${where}: ${key}`);
    }
    return sent;
  };
}

function didYouMean(word: string, known: string[]): string {
  const plain = (name: string) => name.toLowerCase().replaceAll("_", "");
  const near =
    known.find((name) => plain(name) === plain(word)) ?? known.find((name) => distance(plain(name), plain(word)) <= 2);
  return near === undefined ? `; known: ${known.join(", ")}` : `; did you mean ${near}?`;
}

/** How many letters differ (Levenshtein). */
function distance(a: string, b: string): number {
  let row = Array.from({ length: b.length + 1 }, (_, at) => at);
  for (const [i, letter] of a.split("").entries()) {
    const next = [i + 1];
    for (let j = 0; j < b.length; j++) {
      const replaced = (row[j] ?? 0) + (letter === b[j] ? 0 : 1);
      next.push(Math.min(replaced, (row[j + 1] ?? 0) + 1, (next[j] ?? 0) + 1));
    }
    row = next;
  }
  return row[b.length] ?? 0;
}

/** The JSON text of a value. `undefined` is `null`. The error completes "WHAT is not JSON: …". */
export function toJson(value: unknown): string {
  if (value === undefined) return "null";
  if (typeof value === "number" && !Number.isFinite(value)) throw new TypeError(`the number ${value}`);
  const json = JSON.stringify(value) as string | undefined;
  if (json === undefined) throw new TypeError(`a ${typeof value}`);
  return json;
}
