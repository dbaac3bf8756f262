/** Creates tasks by one SQL statement, on the connection or in the transaction of the caller. */

import { randomUUID } from "node:crypto";
import type { Created, CreatedFlow, SignalStatus } from "./create.js";
import { query, type SqlClient } from "./drivers.js";
import type { FlowRequest, TaskRequest } from "./request.js";

export type { SqlClient } from "./drivers.js";

/**
 * All values go into one parameter, a JSON text, so that no driver has to know the types of
 * arrays. A list of columns from it is what the functions of the database take.
 */
const COLUMNS = `SELECT
    array_agg(t.task ->> 'class' ORDER BY t.place) AS classes,
    array_agg(t.task -> 'parameters' ORDER BY t.place) AS parameters,
    array_agg((t.task ->> 'scheduled_at')::timestamptz ORDER BY t.place) AS scheduled_ats,
    array_agg((t.task ->> 'delay')::interval ORDER BY t.place) AS delays,
    array_agg((t.task ->> 'priority')::integer ORDER BY t.place) AS priorities,
    array_agg(t.task ->> 'queue' ORDER BY t.place) AS queues,
    array_agg(t.task -> 'context' ORDER BY t.place) AS contexts,
    array_agg(t.task -> 'unique' ->> 'key' ORDER BY t.place) AS keys,
    array_agg(t.task -> 'unique' ->> 'scope' ORDER BY t.place) AS scopes,
    array_agg(t.task -> 'unique' ->> 'on_conflict' ORDER BY t.place) AS on_conflicts
  FROM jsonb_array_elements($1::text::jsonb) WITH ORDINALITY AS t(task, place)`;

const SEVEN = "a.classes, a.parameters, a.scheduled_ats, a.delays, a.priorities, a.queues, a.contexts";

function inSchema(schema: string): string {
  return `"${schema.replaceAll('"', '""')}"`;
}

const interval = (ms: number | undefined) => (ms === undefined ? undefined : `${ms} milliseconds`);

/** The tasks that there are now, in the order of the requests. */
export async function createSql(client: SqlClient, tasks: TaskRequest[], schema: string): Promise<Created[]> {
  const [first] = tasks;
  if (first?.dependencies) return [await createDependent(client, first, schema)];
  const sent = tasks.map(({ limits, correlation_id, traceparent, retry, after_ms, unique, ...task }) => ({
    ...task,
    delay: interval(after_ms),
    context: { limits, correlation_id, traceparent, retry },
    unique: unique && { ...unique, scope: typeof unique.scope === "number" ? interval(unique.scope) : unique.scope },
  }));
  // Creation without keys is faster in the database.
  const hasKeys = tasks.some((task) => task.unique);
  const created = hasKeys
    ? `${inSchema(schema)}.create_unique_tasks(${SEVEN}, a.keys, a.scopes, a.on_conflicts) WITH ORDINALITY AS c(id, outcome, place)`
    : `${inSchema(schema)}.create_tasks(${SEVEN}) WITH ORDINALITY AS c(id, place)`;
  const rows = await query(
    client,
    `SELECT c.id::text AS id, ${hasKeys ? "c.outcome" : "'created'"} AS outcome FROM (${COLUMNS}) AS a CROSS JOIN LATERAL ${created} ORDER BY c.place`,
    JSON.stringify(sent),
  );
  return rows.map(({ id, outcome }) => ({ id: Number(id), outcome: outcome as Created["outcome"] }));
}

/** A task that depends on others is a flow of one task, named after its class. */
async function createDependent(client: SqlClient, task: TaskRequest, schema: string): Promise<Created> {
  const { correlation_id, ...only } = task;
  const flow = { ...(correlation_id === undefined ? {} : { correlation_id }), tasks: { [task.class]: only } };
  const { tasks } = await createFlowSql(client, flow, schema);
  return { id: tasks[task.class] ?? 0, outcome: "created" };
}

export async function createFlowSql(client: SqlClient, flow: FlowRequest, schema: string): Promise<CreatedFlow> {
  // The function returns no correlation id, so it gets one, unless it takes that of an existing task.
  const targets = Object.values(flow.tasks).flatMap((task) => Object.values(task.dependencies ?? {}).flat());
  const ofExisting = targets.some((target) => typeof target === "number");
  const correlation_id = flow.correlation_id ?? (ofExisting ? undefined : randomUUID());
  const tasks = Object.entries(flow.tasks).map(([name, { after_ms, dependencies, ...task }]) => [
    name,
    { ...task, delay: interval(after_ms), ...dependencies },
  ]);
  const rows = await query(
    client,
    `SELECT f.name, f.task_id::text AS id FROM ${inSchema(schema)}.create_flow($1::text::jsonb) AS f`,
    JSON.stringify({ ...flow, correlation_id, tasks: Object.fromEntries(tasks) as unknown }),
  );
  return {
    correlationId: correlation_id,
    tasks: Object.fromEntries(rows.map(({ name, id }) => [String(name), Number(id)])),
  };
}

export async function signalSql(
  client: SqlClient,
  taskId: number,
  name: string,
  payload: string,
  schema: string,
): Promise<SignalStatus> {
  const rows = await query(
    client,
    `SELECT ${inSchema(schema)}.signal((s.v ->> 'task_id')::bigint, s.v ->> 'name', s.v -> 'payload') AS status FROM (SELECT $1::text::jsonb AS v) AS s`,
    `{"task_id": ${taskId}, "name": ${JSON.stringify(name)}, "payload": ${payload}}`,
  );
  return rows[0]?.status as SignalStatus;
}

export async function signalUniqueSql(
  client: SqlClient,
  className: string,
  key: string,
  name: string,
  payload: string,
  schema: string,
): Promise<{ taskId: number | undefined; status: SignalStatus }> {
  const rows = await query(
    client,
    `SELECT u.task_id::text AS id, u.status FROM (SELECT $1::text::jsonb AS v) AS s
     CROSS JOIN LATERAL ${inSchema(schema)}.signal_unique(s.v ->> 'class', s.v ->> 'key', s.v ->> 'name', s.v -> 'payload') AS u`,
    `{"class": ${JSON.stringify(className)}, "key": ${JSON.stringify(key)}, "name": ${JSON.stringify(name)}, "payload": ${payload}}`,
  );
  const id = rows[0]?.id;
  return { taskId: id == null ? undefined : Number(id), status: rows[0]?.status as SignalStatus };
}
