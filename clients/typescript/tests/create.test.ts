/** Creation in PostgreSQL, with each driver. */

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { PrismaPg } from "@prisma/adapter-pg";
import { drizzle as drizzlePg } from "drizzle-orm/node-postgres";
import { drizzle as drizzleJs } from "drizzle-orm/postgres-js";
import pg from "pg";
import postgres from "postgres";
import {
  create,
  createFlow,
  createMany,
  DatabaseError,
  InvalidArgument,
  signal,
  signalUnique,
  type SqlClient,
} from "task-engine";
import { PrismaClient } from "./generated/client.js";
import { DATABASE_URL } from "./helpers.js";

const pool = new pg.Pool({ connectionString: DATABASE_URL });
const client = new pg.Client(DATABASE_URL);
const sql = postgres(DATABASE_URL, { onnotice: () => undefined });
const prisma = new PrismaClient({ adapter: new PrismaPg({ connectionString: DATABASE_URL }) });

before(() => client.connect());
after(async () => {
  await prisma.$disconnect();
  await Promise.all([pool.end(), client.end(), sql.end()]);
});

interface Row {
  task_class: string;
  task_parameters: unknown;
  context: Record<string, unknown>;
  queue: string;
  priority: number;
  status: string;
  correlation_id: string;
  scheduled_at: Date;
  created_at: Date;
}

async function stored(id: number): Promise<Row | undefined> {
  return (await pool.query<Row>("SELECT * FROM task_engine.tasks WHERE id = $1", [id])).rows[0];
}

/** Texts that break a driver or a literal which does not quote. */
const NASTY = {
  text: `'; DROP TABLE x; -- \\' \\\\ "$1" $$ ? :name %s {} \n\t ü \u{1f600}`,
  number: 12345678901234,
  list: [null, true, { a: [] }],
};

class Rollback extends Error {}

const drivers: Record<
  string,
  { db: SqlClient; transaction: (work: (tx: SqlClient) => Promise<void>) => Promise<unknown> }
> = {
  "node-postgres Client": {
    db: client,
    transaction: (work) => begin(client, work),
  },
  "node-postgres Pool": {
    db: pool,
    transaction: async (work) => {
      const one = await pool.connect();
      try {
        await begin(one, work);
      } finally {
        one.release();
      }
    },
  },
  "postgres.js": { db: sql, transaction: (work) => sql.begin((tx) => work(tx)) },
  "Drizzle on node-postgres": {
    db: drizzlePg(pool),
    transaction: (work) => drizzlePg(pool).transaction((tx) => work(tx)),
  },
  "Drizzle on postgres.js": { db: drizzleJs(sql), transaction: (work) => drizzleJs(sql).transaction((tx) => work(tx)) },
  Prisma: { db: prisma, transaction: (work) => prisma.$transaction((tx) => work(tx)) },
};

async function begin(connection: pg.ClientBase, work: (tx: SqlClient) => Promise<void>): Promise<void> {
  await connection.query("BEGIN");
  try {
    await work(connection);
    await connection.query("COMMIT");
  } catch (error) {
    await connection.query("ROLLBACK");
    throw error;
  }
}

for (const [name, { db, transaction }] of Object.entries(drivers)) {
  test(`${name}: a task commits or rolls back with its transaction`, async () => {
    let committed = 0;
    let rolledBack = 0;
    await transaction(async (tx) => {
      committed = (await create(tx, "ts_driver", NASTY, { priority: 5 })).id;
      assert.equal((await stored(committed)) ?? "not visible yet", "not visible yet");
    });
    const row = await stored(committed);
    assert.deepEqual([row?.task_class, row?.task_parameters, row?.priority], ["ts_driver", NASTY, 5]);
    await assert.rejects(
      transaction(async (tx) => {
        rolledBack = (await create(tx, "ts_driver")).id;
        throw new Rollback();
      }),
      Rollback,
    );
    assert.ok(rolledBack > committed);
    assert.equal(await stored(rolledBack), undefined);
  });

  test(`${name}: errors have the code and the message of the server`, async () => {
    await assert.rejects(create(db, "ts_driver", {}, { limits: { ts_nothing: "a" } }), (error) => {
      assert.ok(error instanceof DatabaseError);
      assert.equal(error.code, "23514");
      assert.match(error.message, /limit "ts_nothing" does not exist/);
      assert.ok(error.cause instanceof Error);
      return true;
    });
  });

  test(`${name}: flows, many tasks and signals`, async () => {
    const many = await createMany(db, [
      { class: "ts_driver", parameters: { n: 1 } },
      { class: "ts_driver", unique: `many of ${name}` },
      { class: "ts_driver", unique: `many of ${name}` },
    ]);
    assert.deepEqual(
      many.map(({ outcome }) => outcome),
      ["created", "created", "kept"],
    );
    assert.equal(many[1]?.id, many[2]?.id);
    const flow = await createFlow(db, {
      name: "ts",
      tasks: { a: { class: "ts_driver" }, b: { class: "ts_driver", after: "a" } },
    });
    assert.equal((await stored(flow.tasks.b ?? 0))?.correlation_id, flow.correlationId);
    assert.equal(await signal(db, flow.tasks.a ?? 0, "approved", NASTY), "kept");
    assert.equal(await signal(db, flow.tasks.a ?? 0, "approved", 1), "duplicate");
    const { rows } = await pool.query<{ payload: unknown }>(
      "SELECT payload FROM task_engine.signals WHERE task_id = $1",
      [flow.tasks.a],
    );
    assert.deepEqual(rows, [{ payload: NASTY }]);
  });
}

test("all options of a task", async () => {
  const traceparent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
  await pool.query(`SELECT task_engine.set_limit('ts_api', '{"max": 2}')`);
  const { id, outcome } = await create(
    pool,
    "ts_options",
    { a: 1 },
    {
      after: "1h30m",
      queue: "mail",
      priority: -3,
      unique: { key: "order 17", scope: "1 day", onConflict: "replace" },
      limits: { ts_api: 17 },
      correlationId: "orders",
      traceparent,
      retry: { maximum: 2, firstDelay: "10s", factor: 1.5, cap: "1h", jitter: 0.5, restartAfterProgress: false },
    },
  );
  assert.equal(outcome, "created");
  const row = await stored(id);
  assert.ok(row);
  assert.deepEqual([row.queue, row.priority, row.correlation_id, row.status], ["mail", -3, "orders", "waiting"]);
  assert.equal(row.scheduled_at.getTime() - row.created_at.getTime(), 5_400_000);
  assert.deepEqual(row.context, {
    limits: { ts_api: "17" },
    retry: {
      maximum: 2,
      first_delay_ms: 10_000,
      factor: 1.5,
      cap_ms: 3_600_000,
      jitter: 0.5,
      restart_after_progress: false,
    },
    unique_key: "order 17",
    traceparent,
    correlation_id: "orders",
  });
  const at = new Date("2030-01-01T09:00:00Z");
  const replaced = await create(
    pool,
    "ts_options",
    { a: 2 },
    { at, unique: { key: "order 17", scope: "1 day", onConflict: "replace" } },
  );
  assert.deepEqual(replaced, { id, outcome: "replaced" });
  assert.deepEqual((await stored(id))?.scheduled_at, at);
  assert.deepEqual(await create(pool, "ts_options", {}, { unique: "order 17" }), { id, outcome: "kept" });
  assert.deepEqual(await signalUnique(pool, "ts_options", "order 17", "paid"), { taskId: id, status: "kept" });
  assert.deepEqual(await signalUnique(pool, "ts_options", "no such key", "paid"), {
    taskId: undefined,
    status: "not_found",
  });
});

test("dependencies on tasks that exist", async () => {
  const first = await create(pool, "ts_first", {}, { correlationId: "ts flow" });
  const second = await create(pool, "ts_second", { n: 2 }, { afterTask: first.id, priority: 4, after: 60 });
  const third = await create(
    pool,
    "ts_third",
    {},
    { afterTaskEnd: [first.id], afterTaskFailure: second.id, correlationId: "own" },
  );
  const { rows } = await pool.query(
    "SELECT task_id::int, depends_on::int, condition FROM task_engine.task_dependencies WHERE task_id = ANY ($1) ORDER BY 1, 2",
    [[second.id, third.id]],
  );
  assert.deepEqual(rows, [
    { task_id: second.id, depends_on: first.id, condition: "success" },
    { task_id: third.id, depends_on: first.id, condition: "end" },
    { task_id: third.id, depends_on: second.id, condition: "failure" },
  ]);
  const row = await stored(second.id);
  assert.deepEqual([row?.correlation_id, row?.priority, row?.task_parameters], ["ts flow", 4, { n: 2 }]);
  assert.equal((await stored(third.id))?.correlation_id, "own");
});

test("many tasks are created in their order, all or none", async () => {
  const created = await createMany(
    pool,
    Array.from({ length: 5000 }, (_, n) => ({ class: "ts_many", parameters: { n }, priority: n % 7 })),
  );
  assert.equal(new Set(created.map(({ id }) => id)).size, 5000);
  const last = created[4999];
  assert.deepEqual((await stored(last?.id ?? 0))?.task_parameters, { n: 4999 });
  assert.deepEqual(await createMany(pool, []), []);
  await assert.rejects(createMany(pool, [{ class: "ts_none" }, { class: "ts_none", limits: { ts_nothing: null } }]), {
    code: "23514",
  });
  const { rows } = await pool.query("SELECT count(*)::int AS n FROM task_engine.tasks WHERE task_class = 'ts_none'");
  assert.deepEqual(rows, [{ n: 0 }]);
});

test("bad arguments are found before anything is sent", async () => {
  let sent = 0;
  const silent = { query: () => Promise.resolve({ rows: [{}, {}].slice(++sent) }) };
  const cases: [() => Promise<unknown>, RegExp][] = [
    [() => create(silent, ""), /create: the class: "" is not a name/],
    [() => create(silent, "a", {}, { prioritty: 5 } as object), /unknown option "prioritty"; did you mean priority\?/],
    [() => create(silent, "a", {}, { unique_key: "a" } as object), /unknown option "unique_key"; known: /],
    [() => create(silent, "a", {}, { priority: 1.5 }), /priority: 1.5 is not a whole number from -2147483648/],
    [() => create(silent, "a", {}, { after: "soon" }), /after: "soon" is not a duration; write "30s"/],
    [() => create(silent, "a", {}, { after: -1 }), /after: -1 is not a duration/],
    [
      () => create(silent, "a", {}, { at: "2030-01-01T09:00:00" }),
      /not a time; pass a Date, or a text with its offset/,
    ],
    [() => create(silent, "a", {}, { at: new Date(), after: 1 }), /give a time \(`at`\) or a wait, not both/],
    [() => create(silent, "a", [] as object), /parameters: \[\] is not an object/],
    [() => create(silent, "a", { n: 1n }), /parameters: they are not JSON: .*BigInt/],
    [() => create(silent, "a", {}, { unique: { key: "a", scope: "later" } }), /scope: "later" is not a duration/],
    [
      () => create(silent, "a", {}, { unique: { key: "a", onConflict: "drop" as "keep" } }),
      /"drop" is not one of keep, replace/,
    ],
    [() => create(silent, "a", {}, { unique: "x".repeat(501) }), /at most 500 bytes, not 501/],
    [() => create(silent, "a", {}, { unique: "a", afterTask: 1 }), /a task that depends on others cannot be unique/],
    [() => create(silent, "a", {}, { afterTask: 0 }), /afterTask\[0\]|afterTask: 0 is not a whole number from 1/],
    [() => create(silent, "a", {}, { traceparent: "x" }), /"x" is not a traceparent like 00-/],
    [() => create(silent, "a", {}, { limits: { a: "1", b: "1", c: "1", d: "1" } }), /at most 3 limits, not 4/],
    [() => create(silent, "a", {}, { retry: { maximum: -1 } }), /retry: maximum: -1 is not a whole number from 0/],
    [() => create(silent, "a", {}, { idempotencyKey: "a" }), /idempotencyKey: only for HTTP; in SQL use `unique`/],
    [
      () => createMany(silent, [{ class: "a" }, { class: "b", priority: "5" as unknown as number }]),
      /createMany: task 2: priority: "5" is not a whole number/,
    ],
    [
      () => createFlow(silent, { tasks: { a: { class: "a", after: "b" } } }),
      /task "a": it depends on "b", which is no task of the flow/,
    ],
    [() => createFlow(silent, { tasks: {} }), /a flow needs tasks/],
    [() => signal(silent, 1.5, "a"), /the task id: 1.5 is not a whole number/],
    [() => signal(silent, 1, "a", 1n), /the payload is not JSON/],
  ];
  for (const [call, message] of cases) {
    await assert.rejects(
      call,
      (error: Error) => error instanceof InvalidArgument && message.test(error.message),
      String(message),
    );
  }
  assert.equal(sent, 0);
});

test("other clients are refused with one message", async () => {
  const mysql = { query: () => Promise.resolve([[], []]), execute: () => Promise.resolve([[], []]) };
  const rows = { query: () => Promise.resolve(undefined) };
  for (const other of [null, 7, "postgres://", {}, mysql, rows]) {
    await assert.rejects(
      create(other as unknown as SqlClient, "a"),
      /tasks cannot be created with this client .*; pass a Client, Pool or PoolClient of node-postgres/,
    );
  }
});

test("another schema is quoted", async () => {
  await assert.rejects(create(pool, "a", {}, { schema: 'no "such" schema' }), {
    code: "3F000",
    message: 'schema "no "such" schema" does not exist; create the tables with `task-engine migrate`',
  });
});
