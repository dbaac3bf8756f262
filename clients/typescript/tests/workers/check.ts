/** A worker with all classes of `task-engine check --worker`. */

import { ChildFailed, NoRetry, RateLimited, RetryAfter, serve, Snooze, task, WaitTimedOut } from "task-engine";

interface Message {
  message: string;
}
interface Later extends Message {
  time: string;
}

task("check.echo", (_, { value }: { value: unknown }) => value);

task("check.info", (ctx) => ({
  task_id: ctx.taskId,
  attempt: ctx.attempt,
  retry_number: ctx.retryNumber,
  class: ctx.class,
  correlation_id: ctx.correlationId,
}));

task("check.dependencies", (ctx) => ctx.dependencies);

task("check.fail", (_, { message }: Message) => {
  throw new RangeError(message);
});

task("check.fail_for_good", (_, { message }: Message) => {
  throw new NoRetry(message);
});

task("check.fail_later", (_, { message, time }: Later) => {
  throw new RetryAfter(time, message);
});

task("check.snooze", (_, { message, time }: Later) => {
  throw new Snooze(time, message);
});

task("check.rate_limited", (_, { message, time }: Later) => {
  throw new RateLimited(time, message);
});

task("check.log", (ctx, { lines }: { lines: number }) => {
  for (let line = 1; line <= lines; line++) ctx.log(`line ${line}`);
  return lines;
});

task("check.print", (_, { text }: { text: string }) => {
  console.log(text);
  process.stdout.write(`${text}\n`);
});

task("check.progress", (ctx, { percent, message }: Message & { percent: number }) => {
  ctx.progress(percent, message);
});

task("check.wait_for_cancel", async (ctx) => {
  await ctx.whenCancelled();
  return "cancelled";
});

task("check.step", async (ctx, { values }: { values: unknown[] }) => {
  const results = [];
  for (const value of values) results.push(await ctx.step("value", () => value));
  return results;
});

task("check.sleep", async (ctx, { time }: { time: string }) => {
  try {
    await ctx.sleep("pause", time);
  } catch {
    // No error: if the attempt ends, no code after the sleep runs.
  }
  return "awake";
});

task("check.wait", async (ctx, { timeout }: { timeout: string }) => {
  try {
    return await ctx.waitFor("approved", timeout);
  } catch (error) {
    if (error instanceof WaitTimedOut) return "timed out";
    throw error;
  }
});

task("check.call", async (ctx, { class: name, parameters }: { class: string; parameters: object }) => {
  try {
    return await ctx.call(name, parameters);
  } catch (error) {
    if (error instanceof ChildFailed) return `failed: ${error.message}`;
    throw error;
  }
});

task("check.exit", (_, { code }: { code: number }) => {
  process.exit(code);
});

await serve();
