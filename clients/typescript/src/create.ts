/** Creates tasks, in a transaction of the caller or over HTTP. */

import { createHttp, createFlowHttp, HttpClient, signalHttp, signalUniqueHttp } from "./http.js";
import { flowRequest, taskRequest, type Flow, type NewTask, type CreateOptions } from "./request.js";
import { createFlowSql, createSql, signalSql, signalUniqueSql, type SqlClient } from "./sql.js";
import * as check from "./check.js";
import type { AnyTask } from "./task.js";

export type { CreateOptions, Flow, FlowTask, NewTask, Unique } from "./request.js";
export type { SqlClient } from "./sql.js";

/** What creates tasks: a connection or transaction of your driver, or an `HttpClient`. */
export type Client = SqlClient | HttpClient;

/** A task that there is now. */
export interface Created {
  id: number;
  /** Only a unique task can be `kept` (it existed) or `replaced` (it existed and was changed). */
  outcome: "created" | "kept" | "replaced";
}

export interface CreatedFlow {
  /** Unknown (`undefined`) in SQL, if the flow belongs to that of a task that it depends on. */
  correlationId: string | undefined;
  /** The ids of its tasks, by name. */
  tasks: Record<string, number>;
}

/** Whether a task got a signal. All but the first two mean that it did not. */
export type SignalStatus = "delivered" | "kept" | "duplicate" | "timed_out" | "task_ended" | "not_found";

/** For all tasks of one call. */
export interface CallOptions {
  /** Only over HTTP: a request that is repeated with the same key creates nothing new. */
  idempotencyKey?: string;
  /** Only in SQL: the schema of Task Engine. Default: `task_engine`. */
  schema?: string;
}

/** Creates a task. With a connection or transaction of PostgreSQL, it is one SQL statement. */
export async function create(
  client: Client,
  task: string | AnyTask,
  parameters: object = {},
  options: CreateOptions = {},
): Promise<Created> {
  const { idempotencyKey, schema, ...others } = options;
  const request = taskRequest({ ...others, class: task, parameters }, "create");
  const call = callOptions(client, { idempotencyKey, schema });
  const created =
    client instanceof HttpClient
      ? createHttp(client, [request], call.idempotencyKey, true)
      : createSql(client, [request], call.schema);
  const [one] = await created;
  return one ?? check.invalid("create", "the server returned no task");
}

/** Creates many tasks: all of them, or none. */
export async function createMany(
  client: Client,
  tasks: readonly NewTask[],
  options: CallOptions = {},
): Promise<Created[]> {
  if (!Array.isArray(tasks)) check.invalid("createMany", `${check.shown(tasks)} is not a list of tasks`);
  const requests = tasks.map((one, at) => taskRequest(one as NewTask, `createMany: task ${at + 1}`));
  const dependent = requests.findIndex((request) => request.dependencies);
  if (dependent >= 0)
    check.invalid(`createMany: task ${dependent + 1}`, "it depends on others; use createFlow, or create it alone");
  const call = callOptions(client, options);
  if (requests.length === 0) return [];
  return client instanceof HttpClient
    ? createHttp(client, requests, call.idempotencyKey, false)
    : createSql(client, requests, call.schema);
}

/** Creates tasks that depend on each other: all of them, or none. */
export async function createFlow(client: Client, flow: Flow, options: CallOptions = {}): Promise<CreatedFlow> {
  const request = flowRequest(flow);
  const call = callOptions(client, options);
  return client instanceof HttpClient
    ? createFlowHttp(client, request, call.idempotencyKey)
    : createFlowSql(client, request, call.schema);
}

/** Sends a signal to a durable task. The first signal of a name counts. */
export async function signal(
  client: Client,
  taskId: number,
  name: string,
  payload: unknown = null,
  options: { schema?: string } = {},
): Promise<SignalStatus> {
  check.taskId(taskId, "signal: the task id");
  check.name(name, "signal: the name");
  const json = payloadJson(payload);
  const { schema } = callOptions(client, options);
  return client instanceof HttpClient
    ? signalHttp(client, taskId, name, json)
    : signalSql(client, taskId, name, json, schema);
}

/** The same for the task that was created last with this class and unique key. */
export async function signalUnique(
  client: Client,
  task: string | AnyTask,
  key: string,
  name: string,
  payload: unknown = null,
  options: { schema?: string } = {},
): Promise<{ taskId: number | undefined; status: SignalStatus }> {
  const className = check.name(typeof task === "string" ? task : task.class, "signalUnique: the class") as string;
  check.text(key, "signalUnique: the key");
  check.name(name, "signalUnique: the name");
  const json = payloadJson(payload);
  const { schema } = callOptions(client, options);
  return client instanceof HttpClient
    ? signalUniqueHttp(client, className, key, name, json)
    : signalUniqueSql(client, className, key, name, json, schema);
}

function payloadJson(payload: unknown): string {
  try {
    return check.toJson(payload);
  } catch (error) {
    return check.invalid("signal", `the payload is not JSON: ${(error as Error).message}`);
  }
}

function callOptions(
  client: Client,
  options: { [Key in keyof CallOptions]: CallOptions[Key] | undefined },
): { idempotencyKey?: string; schema: string } {
  const sent = check.object({ idempotencyKey: ["idempotencyKey", check.text], schema: ["schema", check.name] })(
    options,
    "options",
  );
  const isHttp = client instanceof HttpClient;
  if (isHttp && sent.schema !== undefined)
    check.invalid("schema", "only for SQL; the server of the HTTP API knows its schema");
  if (!isHttp && sent.idempotencyKey !== undefined)
    check.invalid("idempotencyKey", "only for HTTP; in SQL use `unique`, or commit it with your data");
  return { ...sent, schema: (sent.schema as string | undefined) ?? "task_engine" };
}
