/** The context for tests of tasks. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { task, WaitTimedOut, ChildFailed, Cancelled, InvalidParameters } from "task-engine";
import { FakeContext } from "task-engine/testing";
import { z } from "zod";

const resize = task("t_resize", { parameters: z.object({ width: z.number() }) }, (_, { width }) => width * 2);

const order = task("t_order", async (ctx, { item }: { item: string }) => {
  ctx.log("order of", item);
  const receipt = await ctx.step("charge", () => ({ at: new Date(0), attempt: ctx.attempt }));
  const again = await ctx.step("charge", () => 2);
  const { by } = await ctx.waitFor<{ by: string }>("approved", "7d");
  await ctx.sleep("cooling off", "3d");
  const size = await ctx.call(resize, { width: 40 });
  const all = await ctx.callAll<number>([{ class: resize, parameters: { width: 1 } }, { class: "t_other" }]);
  ctx.progress(100, "done");
  return { receipt, again, by, size, all: all.map((one) => one.status), stock: ctx.resultOf<number>("stock") };
});

test("a task runs without an engine, and its calls are recorded", async () => {
  const ctx = new FakeContext({
    attempt: 2,
    results: { stock: 5 },
    signals: { approved: { by: "ada" } },
    children: {
      t_resize: ({ width }: { width: number }) => width * 2,
      t_other: () => {
        throw new TypeError("no");
      },
    },
  });
  assert.deepEqual(await order.run(ctx, { item: "book" }), {
    receipt: { at: "1970-01-01T00:00:00.000Z", attempt: 2 },
    again: 2,
    by: "ada",
    size: 80,
    all: ["stopped", "failed"],
    stock: 5,
  });
  assert.deepEqual(ctx.logs, ["order of book"]);
  assert.deepEqual(ctx.steps, ["charge", "charge#2"]);
  assert.deepEqual(ctx.sleeps, [{ name: "cooling off", time: "3d" }]);
  assert.deepEqual(ctx.waits, [{ name: "approved", timeout: "7d" }]);
  assert.deepEqual(ctx.progressReports, [{ percent: 100, message: "done" }]);
  assert.deepEqual(ctx.calls[0], { class: "t_resize", parameters: { width: 40 } });
});

test("recorded steps, missing signals, failed children and cancellation", async () => {
  await assert.rejects(order.run(new FakeContext(), { item: "book" }), WaitTimedOut);
  const signals = { approved: { by: "ada" } };
  const failing = new FakeContext({ signals, children: { t_resize: () => Promise.reject(new Error("no paper")) } });
  await assert.rejects(
    order.run(failing, { item: "book" }),
    (error) => error instanceof ChildFailed && error.message === "no paper",
  );
  await assert.rejects(order.run(new FakeContext({ signals }), { item: "book" }), /it has no result of t_resize/);
  const again = new FakeContext({ recorded: { charge: "receipt", "charge#2": 7 } });
  await assert.rejects(order.run(again, { item: "book" }), WaitTimedOut);
  assert.deepEqual(again.steps, []);
  const cancelled = new FakeContext();
  cancelled.cancel();
  await assert.rejects(order.run(cancelled, { item: "book" }), Cancelled);
  await cancelled.whenCancelled();
});

test("parameters are checked", async () => {
  await assert.rejects(
    resize.run(new FakeContext(), { width: "wide" }),
    (error) => error instanceof InvalidParameters && error.message.includes("width: "),
  );
  assert.equal(await resize.run(new FakeContext(), { width: 4 }), 8);
});
