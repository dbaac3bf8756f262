/** Checked requests to create tasks, before they become SQL or HTTP. */

import * as check from "./check.js";
import type { Duration } from "./duration.js";
import { retryOverride, type RetryRule } from "./options.js";
import type { AnyTask } from "./task.js";

/** A key that is unique within the class. */
export interface Unique {
  key: string;
  /**
   * Which task with the key is in conflict: one that waits or runs (`active`, the default), one
   * that waits (`waiting`), or one that was created less than this time ago.
   */
  // eslint-disable-next-line @typescript-eslint/no-redundant-type-constituents -- for readers
  scope?: "active" | "waiting" | Duration;
  /** What happens to it, if it waits. Default: `keep`. */
  onConflict?: "keep" | "replace" | "replace_parameters" | "replace_time";
}

interface CommonOptions {
  /** The earliest start. */
  at?: Date | string;
  queue?: string;
  /** Higher runs first. */
  priority?: number;
  /** Named limits, each with its key; `null`: the parameter that the limit names. */
  limits?: Record<string, string | number | boolean | null>;
  /** A W3C trace context. */
  traceparent?: string;
  /** Overrides values of the retry rule of the class. */
  retry?: RetryRule;
}

/** The options of a new task. */
export interface CreateOptions extends CommonOptions {
  /** The time from now to the earliest start. */
  after?: Duration;
  /** A key, or a key with its scope. */
  unique?: string | Unique;
  /** The flow that it belongs to. */
  correlationId?: string;
  /** It starts after these tasks have succeeded. */
  afterTask?: number | number[];
  /** It starts after these tasks have ended. */
  afterTaskEnd?: number | number[];
  /** It starts after these tasks have ended, and one of them has not succeeded. */
  afterTaskFailure?: number | number[];
  /** Only over HTTP: a request that is repeated with the same key creates nothing new. */
  idempotencyKey?: string;
  /** Only in SQL: the schema of Task Engine. Default: `task_engine`. */
  schema?: string;
}

/** One of many new tasks. */
export interface NewTask extends Omit<
  CreateOptions,
  "idempotencyKey" | "schema" | "afterTask" | "afterTaskEnd" | "afterTaskFailure"
> {
  class: string | AnyTask;
  parameters?: object;
}

type Target = string | number;

/** A task of a flow. `after` and the next two are names in the flow, or ids of existing tasks. */
export interface FlowTask extends CommonOptions {
  class: string | AnyTask;
  parameters?: object;
  /** The time from now to the earliest start. */
  delay?: Duration;
  /** It starts after these tasks have succeeded. */
  after?: Target | Target[];
  /** It starts after these tasks have ended. */
  afterEnd?: Target | Target[];
  /** It starts after these tasks have ended, and one of them has not succeeded. */
  afterFailure?: Target | Target[];
}

export interface Flow {
  name?: string;
  correlationId?: string;
  /** The tasks by name. */
  tasks: Record<string, FlowTask>;
}

/** A checked task. Fields that are `undefined` are left out of the JSON. */
export interface TaskRequest {
  class: string;
  parameters: object;
  queue?: string;
  priority?: number;
  scheduled_at?: string;
  after_ms?: number;
  limits?: Record<string, string | null>;
  retry?: object;
  traceparent?: string;
  correlation_id?: string;
  unique?: { key: string; scope: string | number; on_conflict: string };
  /** In the form of the tasks of a flow. */
  dependencies?: Record<string, Target[]>;
}

export interface FlowRequest {
  name?: string;
  correlation_id?: string;
  tasks: Record<string, TaskRequest>;
}

const limits: check.Check = (value, where) => {
  const found = check.isObject(value)
    ? value
    : check.invalid(where, `${check.shown(value)} is not an object like { api: "acme" }`);
  const entries = Object.entries(found);
  if (entries.length > 3) check.invalid(where, `a task names at most 3 limits, not ${entries.length}`);
  return Object.fromEntries(
    entries.map(([limit, key]) => {
      if (key === null) return [limit, null];
      if (typeof key !== "string" && typeof key !== "number" && typeof key !== "boolean") {
        check.invalid(
          `${where}: ${limit}`,
          `${check.shown(key)} is not a key; write a text, a number, a boolean or null`,
        );
      }
      return [limit, String(key)];
    }),
  );
};

const traceparent: check.Check = (value, where) =>
  typeof value === "string" && /^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}/.test(value)
    ? value
    : check.invalid(
        where,
        `${check.shown(value)} is not a traceparent like 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01`,
      );

const uniqueKey: check.Check = (value, where) => {
  check.text(value, where);
  const bytes = Buffer.byteLength(value as string);
  return bytes <= 500 ? value : check.invalid(where, `a key has at most 500 bytes, not ${bytes}; use a hash`);
};

const scope: check.Check = (value, where) => {
  if (value === "active" || value === "waiting") return value;
  const ms = check.durationMs(value, where) as number;
  return ms > 0 ? ms : check.invalid(where, 'the time of a scope is not 0; write "active", "waiting" or a duration');
};

const uniqueTable = check.object({
  key: ["key", uniqueKey],
  scope: ["scope", scope],
  onConflict: ["on_conflict", check.oneOf("keep", "replace", "replace_parameters", "replace_time")],
});

const unique: check.Check = (value, where) => {
  const sent = uniqueTable(typeof value === "string" ? { key: value } : value, where);
  if (sent.key === undefined) check.invalid(where, "it needs a key");
  return { scope: "active", on_conflict: "keep", ...sent };
};

const parameters: check.Check = (value, where) => {
  if (!check.isObject(value)) check.invalid(where, `${check.shown(value)} is not an object`);
  try {
    const json = JSON.parse(check.toJson(value)) as unknown;
    return check.isObject(json) ? json : check.invalid(where, "their JSON is not an object");
  } catch (error) {
    return check.invalid(where, `they are not JSON: ${(error as Error).message}`);
  }
};

const target: check.Check = (value, where) =>
  typeof value === "string" ? check.name(value, where) : check.taskId(value, where);

const common: check.Fields = {
  class: ["class", check.name],
  parameters: ["parameters", parameters],
  at: ["scheduled_at", check.time],
  queue: ["queue", check.name],
  priority: ["priority", check.priority],
  limits: ["limits", limits],
  traceparent: ["traceparent", traceparent],
  retry: ["retry", retryOverride],
};

const taskFields = check.object({
  ...common,
  after: ["after_ms", check.durationMs],
  unique: ["unique", unique],
  correlationId: ["correlation_id", check.name],
  afterTask: ["after", check.oneOrMore(check.taskId)],
  afterTaskEnd: ["after_end", check.oneOrMore(check.taskId)],
  afterTaskFailure: ["after_failure", check.oneOrMore(check.taskId)],
});

const flowTaskFields = check.object({
  ...common,
  delay: ["after_ms", check.durationMs],
  after: ["after", check.oneOrMore(target)],
  afterEnd: ["after_end", check.oneOrMore(target)],
  afterFailure: ["after_failure", check.oneOrMore(target)],
});

const flowFields = check.object({
  name: ["name", check.name],
  correlationId: ["correlation_id", check.name],
  tasks: [
    "tasks",
    (value, where) =>
      check.isObject(value) ? value : check.invalid(where, `${check.shown(value)} is not an object of tasks by name`),
  ],
});

/** A task of its own. */
export function taskRequest(task: NewTask & CreateOptions, where: string): TaskRequest {
  return checked(task, taskFields, where);
}

/** A flow. */
export function flowRequest(flow: Flow): FlowRequest {
  const { name, correlation_id, tasks } = flowFields(flow, "createFlow") as {
    name?: string;
    correlation_id?: string;
    tasks?: Flow["tasks"];
  };
  const entries = Object.entries(tasks ?? {});
  if (entries.length === 0) check.invalid("createFlow", "a flow needs tasks");
  const requests = entries.map(([key, task]): [string, TaskRequest] => {
    const where = `createFlow: task ${check.shown(check.name(key, "createFlow: the name of a task"))}`;
    const request = checked(task, flowTaskFields, where);
    for (const one of Object.values(request.dependencies ?? {}).flat()) {
      if (typeof one === "string" && !Object.hasOwn(tasks ?? {}, one))
        check.invalid(where, `it depends on ${check.shown(one)}, which is no task of the flow`);
    }
    return [key, request];
  });
  return {
    ...(name === undefined ? {} : { name }),
    ...(correlation_id === undefined ? {} : { correlation_id }),
    tasks: Object.fromEntries(requests),
  };
}

function checked(
  task: NewTask | FlowTask,
  fields: (value: unknown, where: string) => Record<string, unknown>,
  where: string,
): TaskRequest {
  if (!check.isObject(task)) check.invalid(where, `${check.shown(task)} is not an object`);
  const { class: found, ...options } = task as NewTask;
  const known = typeof found === "object" ? { queue: found.queue, priority: found.priority } : {};
  const name = check.name(typeof found === "object" ? found.class : found, `${where}: the class`);
  const given = Object.entries(options).filter(([, value]: [string, unknown]) => value !== undefined);
  const sent = fields({ ...known, ...Object.fromEntries(given), class: name }, where);
  if (sent.scheduled_at !== undefined && sent.after_ms !== undefined)
    check.invalid(where, "give a time (`at`) or a wait, not both");
  const { after, after_end, after_failure, ...request } = sent;
  const dependencies = Object.fromEntries(
    Object.entries({ after, after_end, after_failure }).filter(([, value]) => value !== undefined),
  );
  const isDependent = Object.values(dependencies).some((targets) => (targets as Target[]).length > 0);
  if (isDependent && request.unique !== undefined)
    check.invalid(where, "a task that depends on others cannot be unique");
  return { parameters: {}, ...request, ...(isDependent ? { dependencies } : {}) } as TaskRequest;
}
