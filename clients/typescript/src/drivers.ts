/** Drivers for PostgreSQL, recognised by their methods: none of them is imported. */

import { DatabaseError, InvalidArgument } from "./errors.js";

/** `Client`, `Pool` or `PoolClient` of node-postgres. */
export interface NodePostgres {
  query(text: string, values: unknown[]): Promise<unknown>;
}

/** `sql` of postgres.js, also that of a transaction. */
export interface PostgresJs {
  (...parts: never[]): unknown;
  unsafe(text: string, values: never[]): PromiseLike<unknown>;
}

/** `db` or `tx` of Drizzle. */
export interface Drizzle {
  execute(query: string): PromiseLike<unknown>;
}

/** `prisma` or `tx` of Prisma. */
export interface Prisma {
  $queryRawUnsafe(text: string, ...values: unknown[]): PromiseLike<unknown>;
}

/** A connection, a pool or a transaction of a driver for PostgreSQL. */
export type SqlClient = NodePostgres | PostgresJs | Drizzle | Prisma;

type Row = Record<string, unknown>;
type Send = (text: string, value: string) => unknown;

const SUPPORTED =
  "pass a Client, Pool or PoolClient of node-postgres, the `sql` of postgres.js, the `db` or `tx` of Drizzle (on PostgreSQL), the `prisma` or `tx` of Prisma, or an HttpClient";

/** Runs a statement with one text parameter, `$1`, and returns its rows. */
export async function query(client: SqlClient, text: string, value: string): Promise<Row[]> {
  const send = recognise(client);
  let result: unknown;
  try {
    result = await send(text, value);
  } catch (error) {
    throw databaseError(error);
  }
  const rows = Array.isArray(result) ? result : (result as { rows?: unknown } | undefined)?.rows;
  if (!Array.isArray(rows)) throw unsupported(client);
  return rows as Row[];
}

function recognise(client: unknown): Send {
  if ((typeof client !== "object" && typeof client !== "function") || client === null) throw unsupported(client);
  const found = client as Record<string, unknown>;
  const has = (name: string) => typeof found[name] === "function";
  if (has("$queryRawUnsafe")) return (text, value) => (client as Prisma).$queryRawUnsafe(text, value);
  if (typeof client === "function" && has("unsafe")) {
    return (text, value) => (client as unknown as PostgresJs).unsafe(text, [value] as never[]);
  }
  if (has("execute") && has("select") && has("insert") && isPostgresOfDrizzle(found)) {
    // A text has no parameters in Drizzle, and its `sql` cannot be imported here.
    return (text, value) => (client as Drizzle).execute(text.replace("$1", () => literal(value)));
  }
  // Clients of MySQL have `query`, too.
  if (has("query") && !has("execute")) return (text, value) => (client as NodePostgres).query(text, [value]);
  throw unsupported(client);
}

function isPostgresOfDrizzle(db: Record<string, unknown>): boolean {
  const kind = (db.dialect as object | undefined)?.constructor as Record<symbol, unknown> | undefined;
  const name = kind?.[Symbol.for("drizzle:entityKind")];
  return name === undefined || name === "PgDialect";
}

/** A literal that does not depend on `standard_conforming_strings`. */
function literal(text: string): string {
  if (text.includes("\0")) throw new InvalidArgument("a text for PostgreSQL cannot contain the character \\u0000");
  return `E'${text.replaceAll("\\", "\\\\").replaceAll("'", "''")}'`;
}

function unsupported(client: unknown): InvalidArgument {
  const kind =
    client === null
      ? "null"
      : typeof client === "object"
        ? (client.constructor as { name?: string } | undefined)?.name
        : typeof client;
  return new InvalidArgument(`tasks cannot be created with this client (${kind ?? "object"}); ${SUPPORTED}`);
}

interface DriverError {
  code?: unknown;
  message?: unknown;
  cause?: unknown;
  meta?: {
    code?: unknown;
    message?: unknown;
    driverAdapterError?: { cause?: { originalCode?: unknown; originalMessage?: unknown } };
  };
}

/** Invalid schema name, and undefined table. */
const NOT_MIGRATED: unknown[] = ["3F000", "42P01"];

/** The error with the SQLSTATE and the message of the server, wherever the driver has them. */
function databaseError(error: unknown): DatabaseError {
  let found: { code?: unknown; message?: unknown } = error as DriverError;
  for (
    let at = error as DriverError | undefined, depth = 0;
    at && depth < 5;
    at = at.cause as DriverError | undefined, depth++
  ) {
    const adapter = at.meta?.driverAdapterError?.cause;
    if (adapter?.originalCode !== undefined) found = { code: adapter.originalCode, message: adapter.originalMessage };
    else if (at.meta?.code !== undefined) found = at.meta;
    else if (at.code !== undefined) found = at;
    else continue;
    break;
  }
  const message = typeof found.message === "string" && found.message !== "" ? found.message : String(error);
  const code = typeof found.code === "string" ? { code: found.code } : {};
  const advice = NOT_MIGRATED.includes(found.code) ? "; create the tables with `task-engine migrate`" : "";
  return new DatabaseError(message + advice, { ...code, cause: error });
}
