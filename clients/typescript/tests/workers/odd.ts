/** Tasks that do unusual things. */

import { NoRetry, RetryAfter, serve, task } from "task-engine";
import { setTimeout as pause } from "node:timers/promises";
import { z } from "zod";

class OwnError extends Error {}

task(
  "resize",
  { retries: 5, timeout: "30s", parameters: z.object({ width: z.number(), format: z.string().default("png") }) },
  (_, parameters) => parameters,
);

task(
  "safe_parse",
  {
    parameters: {
      safeParse: (value: unknown) =>
        typeof (value as { name?: unknown }).name === "string"
          ? { success: true as const, data: value as { name: string } }
          : { success: false as const, error: { issues: [{ message: "not a text", path: ["name"] }] } },
    },
  },
  (_, { name }) => name.length,
);

task(
  "all_options",
  {
    timeout: "1m30s",
    grace: 2,
    retries: 3,
    retry: { firstDelay: 1, factor: 2, cap: "1h", jitter: 0.1, restartAfterProgress: false },
    queue: "mail",
    priority: 5,
    resultBytes: 1000,
    logLines: 10,
    secret: "login.password",
    limit: { max: 2, key: "customer" },
    rate: { max: 100, per: "1s", even: true },
    inOrder: { key: "account" },
    fair: "tenant",
    limits: [{ name: "smtp", max: 5, key: "host" }],
    jsonSchema: { type: "object" },
  },
  () => null,
);

task("throws", (_, { kind }: { kind: string }) => {
  const inner = new TypeError("inner");
  switch (kind) {
    case "cause":
      throw new OwnError("outer", { cause: inner });
    case "no retry of a cause":
      throw new NoRetry(inner);
    case "text":
      // eslint-disable-next-line @typescript-eslint/only-throw-error
      throw "only a text";
    case "long":
      throw new Error("x".repeat(3_000_000));
    case "bad time":
      throw new RetryAfter("soon", "busy");
    default:
      // eslint-disable-next-line @typescript-eslint/only-throw-error
      throw undefined;
  }
});

task("returns", async (ctx, { kind }: { kind: string }) => {
  const cycle: { self?: unknown } = {};
  cycle.self = cycle;
  if (kind === "step") return ctx.step("s", () => Symbol("s"));
  return { bigint: 1n, function: () => 1, nan: NaN, cycle, long: "x".repeat(1_048_577) }[kind];
});

task("mixed", (ctx) => {
  ctx.log("one");
  ctx.log("two", { a: 1 });
  ctx.progress(40.5, "half");
  ctx.log("three\nlines");
});

task("slow", async () => {
  await pause(300);
  return "finished";
});

task("catches", async (ctx, { how }: { how: string }) => {
  ctx.log("started");
  try {
    if (how === "signal") await pause(60_000, undefined, { signal: ctx.signal });
    if (how === "sleep") await ctx.sleep("nap", "5s");
    if (how === "step") {
      await ctx.step("work", async () => {
        ctx.log("in the step");
        await ctx.whenCancelled();
        return "done";
      });
    }
    if (how === "log") {
      await ctx.whenCancelled();
      ctx.log("not sent");
    }
  } catch (error) {
    if (how === "signal") return "cleaned up";
    throw error;
  } finally {
    if (how === "sleep" || how === "step") ctx.log("this does not run");
  }
  return "not cancelled";
});

task("many_steps", async (ctx, { steps }: { steps: number }) => {
  const all = await Promise.all(Array.from({ length: steps }, (_, at) => ctx.step(`step ${at}`, () => 1)));
  return all.length;
});

task("runs_on", async (ctx) => {
  const work = ctx.step("work", async () => {
    await pause(100);
    ctx.log("not sent");
    ctx.progress(50);
    console.log("the code has ended");
  });
  await Promise.all([work, ctx.sleep("pause", "3d")]);
});

task("bad_call", async (ctx, { how }: { how: string }) => {
  if (how === "name") await ctx.step("a#2", () => 1);
  else await ctx.sleep("nap", "soon");
});

task("depends", (ctx, { name }: { name: string | number }) => ctx.resultOf(name));

task("exits", (ctx) => {
  ctx.log("last words");
  process.exit(3);
});

const collected: number[] = [];
const registry = new FinalizationRegistry<number>((id) => collected.push(id));

task("suspended", async (ctx) => {
  const memory = { held: "by this function" };
  registry.register(memory, ctx.taskId);
  await ctx.sleep("pause", "3d");
  return memory;
});

task("collected", async () => {
  for (let tries = 0; tries < 100 && collected.length < 100; tries++) {
    (globalThis as { gc?: () => void }).gc?.();
    await pause(5);
  }
  return collected.length;
});

if (process.env.ODD_OPEN_HANDLE) setInterval(() => undefined, 1000);

await serve({ concurrency: 3 });
