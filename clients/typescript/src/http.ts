/** Creates tasks over the HTTP API. */

import type { Created, CreatedFlow, SignalStatus } from "./create.js";
import * as check from "./check.js";
import { milliseconds, type Duration } from "./duration.js";
import { HttpError, InvalidArgument, type Problem } from "./errors.js";
import type { FlowRequest, TaskRequest } from "./request.js";

export interface HttpOptions {
  /** A token of `task-engine tokens create`. Requests from the same machine may need none. */
  token?: string | undefined;
  /** How long to wait for an answer. Default: 30 s. */
  timeout?: Duration;
}

/** The most tasks of one request. */
const TASKS_MAX = 1000;

/** The HTTP API of an engine or of `task-engine web`, like `http://localhost:8642`. */
export class HttpClient {
  readonly #base: string;
  readonly #token: string | undefined;
  readonly #timeout: number;

  constructor(url: string | URL, options: HttpOptions = {}) {
    const parsed = URL.canParse(String(url)) ? new URL(url) : undefined;
    if (parsed?.protocol !== "http:" && parsed?.protocol !== "https:") {
      throw new InvalidArgument(
        `${check.shown(String(url))} is not the URL of the HTTP API; write one like http://localhost:8642`,
      );
    }
    const sent = check.object({ token: ["token", check.text], timeout: ["timeout", check.positiveDuration] })(
      options,
      "HttpClient",
    );
    this.#base = parsed.href.replace(/\/+$/, "");
    this.#token = sent.token as string | undefined;
    this.#timeout = milliseconds(options.timeout ?? 30) ?? 0;
  }

  /** Sends JSON and returns the answer. */
  async post(path: string, body: string, idempotencyKey?: string): Promise<unknown> {
    const headers: Record<string, string> = { "Content-Type": "application/json", Accept: "application/json" };
    if (this.#token !== undefined) headers.Authorization = `Bearer ${this.#token}`;
    if (idempotencyKey !== undefined) headers["Idempotency-Key"] = idempotencyKey;
    const signal = AbortSignal.timeout(this.#timeout);
    let status: number, text: string;
    try {
      const answer = await fetch(`${this.#base}/api/v1${path}`, { method: "POST", headers, body, signal });
      status = answer.status;
      text = await answer.text();
    } catch (error) {
      const reason = error instanceof Error && error.cause instanceof Error ? error.cause : error;
      throw new HttpError(
        `no answer from ${this.#base}: ${reason instanceof Error ? reason.message || reason.name : String(reason)}`,
        0,
        {},
        error,
      );
    }
    const json = parse(text);
    if (status >= 200 && status < 300 && json !== undefined) return json;
    const problem = check.isObject(json) ? (json as Problem) : {};
    const detail = problem.detail ?? problem.title ?? text.slice(0, 200);
    const pointer = problem.pointer === undefined ? "" : ` (${problem.pointer})`;
    throw new HttpError(`HTTP ${status}: ${detail || "no JSON in the answer"}${pointer}`, status, problem);
  }
}

function parse(text: string): unknown {
  try {
    return JSON.parse(text) as unknown;
  } catch {
    return undefined;
  }
}

const wait = (ms: number | undefined) => (ms === undefined ? undefined : `${ms}ms`);

export async function createHttp(
  client: HttpClient,
  tasks: TaskRequest[],
  key: string | undefined,
  alone: boolean,
): Promise<Created[]> {
  if (tasks.length > TASKS_MAX) {
    throw new InvalidArgument(
      `createMany: one request has at most ${TASKS_MAX} tasks, not ${tasks.length}; send several, each with its own idempotencyKey`,
    );
  }
  const [first] = tasks;
  if (first?.dependencies) {
    const { correlation_id, ...only } = first;
    const flow = { ...(correlation_id === undefined ? {} : { correlation_id }), tasks: { [first.class]: only } };
    const created = await createFlowHttp(client, flow, key);
    return [{ id: created.tasks[first.class] ?? 0, outcome: "created" }];
  }
  const body = tasks.map(({ after_ms, unique, ...task }) => {
    if (unique && key !== undefined) throw new InvalidArgument("give a unique key or an idempotencyKey, not both");
    const scope = typeof unique?.scope === "number" ? wait(unique.scope) : unique?.scope;
    return {
      ...task,
      after: wait(after_ms),
      ...(unique && { key: unique.key, scope, on_conflict: unique.on_conflict }),
    };
  });
  const answer = await client.post("/tasks", JSON.stringify(alone ? body[0] : body), key);
  return (answer as { tasks: Created[] }).tasks.map(({ id, outcome }) => ({ id, outcome }));
}

export async function createFlowHttp(
  client: HttpClient,
  flow: FlowRequest,
  key: string | undefined,
): Promise<CreatedFlow> {
  const tasks = Object.entries(flow.tasks).map(([name, { after_ms, dependencies, ...task }]) => [
    name,
    { ...task, delay: wait(after_ms), ...dependencies },
  ]);
  // Without a correlation id, the server makes one. A random one of this client would make the
  // body of a repeated request different.
  const body = { ...flow, tasks: Object.fromEntries(tasks) as unknown };
  const answer = (await client.post("/flows", JSON.stringify(body), key)) as {
    correlation_id?: string;
    tasks: unknown;
  };
  return { correlationId: answer.correlation_id, tasks: idsByName(answer.tasks) };
}

function idsByName(tasks: unknown): Record<string, number> {
  const entries = Object.entries(tasks as Record<string, number | { id: number }>);
  return Object.fromEntries(entries.map(([name, task]) => [name, typeof task === "number" ? task : task.id]));
}

interface Signalled {
  taskId: number | undefined;
  status: SignalStatus;
}

export async function signalHttp(
  client: HttpClient,
  taskId: number,
  name: string,
  payload: string,
): Promise<SignalStatus> {
  return (await send(client, `/tasks/${taskId}/signals/${encodeURIComponent(name)}`, payload)).status;
}

export async function signalUniqueHttp(
  client: HttpClient,
  className: string,
  key: string,
  name: string,
  payload: string,
): Promise<Signalled> {
  const body = `{"class": ${JSON.stringify(className)}, "key": ${JSON.stringify(key)}, "name": ${JSON.stringify(name)}, "payload": ${payload}}`;
  return send(client, "/signals", body);
}

/** A refused signal is an answer, as it is in SQL. */
async function send(client: HttpClient, path: string, body: string): Promise<Signalled> {
  try {
    const answer = (await client.post(path, body)) as { task_id: number; status: SignalStatus };
    return { taskId: answer.task_id, status: answer.status };
  } catch (error) {
    if (!(error instanceof HttpError)) throw error;
    const { outcome, detail } = error.problem;
    if (outcome !== undefined) return { taskId: undefined, status: outcome as SignalStatus };
    // Not the 404 of a wrong address.
    if (error.status === 404 && detail?.startsWith("There is no task"))
      return { taskId: undefined, status: "not_found" };
    throw error;
  }
}
