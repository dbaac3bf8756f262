/** The registration of tasks: options, and types. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { InvalidArgument, serve, task, type Client, type TaskOptions } from "task-engine";
import { z } from "zod";

test("unknown and invalid options are refused with what to write instead", () => {
  const cases: [unknown, RegExp][] = [
    [{ timout: "30s" }, /task "o": unknown option "timout"; did you mean timeout\?/],
    [{ log_lines: 5 }, /unknown option "log_lines"; did you mean logLines\?/],
    [{ timeout: "soon" }, /timeout: "soon" is not a duration; write "30s"/],
    [{ timeout: 0 }, /timeout: 0 is not between 1 ms and a year/],
    [{ retries: -1 }, /retries: -1 is not a whole number from 0/],
    [{ retries: 1, retry: { maximum: 2 } }, /give `retries` or `retry.maximum`, not both/],
    [{ retry: { first_delay: "1s" } }, /retry: unknown option "first_delay"; did you mean firstDelay\?/],
    [{ rate: "often" }, /rate: "often" is not a rate; write "100\/1s"/],
    [{ rate: { max: 5 } }, /a rate needs max and per/],
    [{ limit: 0 }, /limit: 0 is not a whole number from 1 to 10000/],
    [{ queue: "" }, /queue: "" is not a name/],
    [{ secret: [5] }, /secret\[0\]: 5 is not a text/],
    [{ parameters: {} }, /parameters is no schema; pass one of zod/],
    [{ inOrder: "yes" }, /inOrder: "yes" is not an object/],
  ];
  for (const [options, message] of cases) {
    assert.throws(
      () => task("o", options as TaskOptions & { parameters?: undefined }, () => null),
      (error: Error) => error instanceof InvalidArgument && message.test(error.message),
      String(message),
    );
  }
  assert.throws(() => task("o", undefined as unknown as () => null), /is not a function; write task\("o", async/);
  assert.throws(() => task("line\nbreak", () => null), /the class of a task: .* is not a name/);
});

test("a class is registered once", () => {
  task("twice", () => null);
  assert.throws(() => task("twice", () => null), /task "twice" is registered twice/);
});

test("the JSON Schema of the parameters is announced", () => {
  const fromZod = task("with_zod", { parameters: z.object({ width: z.number().default(3) }) }, () => null);
  const schema = fromZod.announcement.schema as { properties: { width: unknown }; required?: string[] };
  assert.deepEqual([schema.properties.width, schema.required], [{ type: "number", default: 3 }, undefined]);
  // A transformation has no JSON Schema: none is announced.
  const none = task("with_date", { parameters: z.object({ at: z.date() }) }, () => null);
  assert.equal(none.announcement.schema, undefined);
});

test("invalid options of serve are refused", async () => {
  await assert.rejects(serve({ concurency: 5 } as object), /unknown option "concurency"; did you mean concurrency\?/);
  await assert.rejects(serve({ concurrency: 0 }), /concurrency: 0 is not a whole number from 1 to 10000/);
  await assert.rejects(serve({ tasks: [] }), /there are no tasks; register one before/);
  await assert.rejects(
    serve({ connect: "http://localhost" }),
    /"http:\/\/localhost" is not an address; write tcp:\/\/HOST:PORT/,
  );
});

/** Checked by the compiler. */
export async function types(client: Client): Promise<void> {
  const schema = z.object({ width: z.number(), format: z.string().default("png") });
  const resize = task("typed", { retries: 5, parameters: schema }, async (ctx, { width, format }) => {
    const length: number = await ctx.step("count", () => format.length);
    // @ts-expect-error -- a number
    const wrong: string = width;
    return { length, wrong };
  });
  await resize.create(client, { width: 80 });
  // @ts-expect-error -- a number
  await resize.create(client, { width: "80" });
  const annotated = task("annotated", (_, { name }: { name: string }) => name.length);
  await annotated.create(client, { name: "Ada" });
  // @ts-expect-error -- a missing parameter
  await annotated.create(client, {});
  task("calls", async (ctx) => {
    const child: number = await ctx.call(annotated, { name: "Ada" });
    const { length }: { length: number } = await ctx.call(resize, { width: 80 });
    return child + length;
  });
  task("without parameters", () => null);
}
