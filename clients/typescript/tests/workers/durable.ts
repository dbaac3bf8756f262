/** Tasks that are killed, or that wait. Their effects go to a file of the folder they run in. */

import { appendFileSync, existsSync } from "node:fs";
import { setTimeout as pause } from "node:timers/promises";
import { serve, task, type Context } from "task-engine";

const retry = { maximum: 3, firstDelay: "10ms" };

function effect(ctx: Context, name: string): string {
  appendFileSync("effects.txt", `${name} ${ctx.attempt} ${process.pid}\n`);
  return name;
}

const ship = task("ship", { retry: { maximum: 0 } }, (_, { item }: { item: string }) => {
  if (item === "piano") throw new Error("too heavy");
  return `parcel of ${item}`;
});

task("order", { retry }, async (ctx, { item }: { item: string }) => {
  const events: string[] = [];
  try {
    await ctx.step("reserve", () => effect(ctx, "reserve"));
    const { by } = await ctx.waitFor<{ by: string }>("approved", "7d");
    await ctx.sleep("cooling off", "6s");
    const parcels = await ctx.callAll<string>([
      { class: ship, parameters: { item } },
      { class: "ship", parameters: { item: "piano" } },
    ]);
    for (const parcel of parcels) events.push(parcel.status === "stopped" ? parcel.result : parcel.error.message);
    await ctx.step("notify", () => effect(ctx, "notify"));
    return { by, events };
  } catch (error) {
    effect(ctx, "catch");
    throw error;
  } finally {
    effect(ctx, "finally");
  }
});

/** Waits in its first attempt until it is killed, after a recorded step. */
task("killed", { retry }, async (ctx) => {
  const first = await ctx.step("charge", () => effect(ctx, "charge"));
  if (ctx.attempt === 1) {
    effect(ctx, "waiting");
    await pause(60_000);
  }
  return [first, ctx.attempt];
});

task("rejects", { retry: { maximum: 0 } }, async () => {
  void Promise.reject(new Error("nobody handles this"));
  await pause(60_000);
});

task("timed_out", { timeout: "300ms", grace: "20s", retry: { maximum: 0 } }, async (ctx) => {
  await pause(60_000, undefined, { signal: ctx.signal });
});

task("until_file", async () => {
  while (!existsSync("go")) await pause(20);
  return "went";
});

await serve({ concurrency: 4 });
