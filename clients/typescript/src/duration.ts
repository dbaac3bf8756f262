/** Durations: a number of seconds, or a text with units. */

/** Seconds, or a text like `"30s"`, `"10m"`, `"1h30m"`, `"3 days"`. */
export type Duration = number | string;

const UNITS = new Map<string, number>();
const NAMES: [number, string][] = [
  [1, "ms msec msecs millisecond milliseconds"],
  [1000, "s sec secs second seconds"],
  [60_000, "m min mins minute minutes"],
  [3_600_000, "h hr hrs hour hours"],
  [86_400_000, "d day days"],
  [7 * 86_400_000, "w week weeks"],
];
for (const [ms, names] of NAMES) for (const name of names.split(" ")) UNITS.set(name, ms);

const LONGEST_MS = 100 * 366 * 86_400_000;

/** The milliseconds of a duration; `undefined` if it is none. */
export function milliseconds(value: unknown): number | undefined {
  const ms = typeof value === "number" ? value * 1000 : typeof value === "string" ? parse(value) : NaN;
  return ms >= 0 && ms <= LONGEST_MS ? Math.round(ms) : undefined;
}

function parse(text: string): number {
  const parts = /^\s*(?:\d+(?:\.\d+)?\s*[a-z]+[\s,]*)+$/i.test(text)
    ? text.matchAll(/(\d+(?:\.\d+)?)\s*([a-z]+)/gi)
    : [];
  let sum = NaN;
  for (const [, number, unit] of parts) {
    sum = (Number.isNaN(sum) ? 0 : sum) + Number(number) * (UNITS.get(String(unit).toLowerCase()) ?? NaN);
    if (Number.isNaN(sum)) return NaN;
  }
  return sum;
}
