/** Child tasks: as they are sent, and how they ended. */

import * as check from "./check.js";
import type { ChildOutcome } from "./context.js";
import { ChildFailed, type RecordedError } from "./errors.js";
import type { ChildTask } from "./task.js";

/** How a child ended, as the engine sends it. */
export interface ChildAnswer {
  task_id: number;
  status: string;
  result?: unknown;
  error?: RecordedError;
}

const childFields = check.object({
  class: ["class", check.name],
  parameters: [
    "parameters",
    (value, where) => (check.isObject(value) ? value : check.invalid(where, `${check.shown(value)} is not an object`)),
  ],
  queue: ["queue", check.name],
  priority: ["priority", check.priority],
});

/** A checked child task. */
export function childRequest(
  child: ChildTask,
  where: string,
): { class: string; parameters: object; queue?: string; priority?: number } {
  const { class: task, ...options } = child;
  const known = typeof task === "string" ? {} : { queue: task.queue, priority: task.priority };
  const given = Object.entries(options).filter(([, value]: [string, unknown]) => value !== undefined);
  const name = typeof task === "string" ? task : task.class;
  return childFields({ ...known, parameters: {}, ...Object.fromEntries(given), class: name }, where) as ReturnType<
    typeof childRequest
  >;
}

export function childOutcome<Result>({ task_id: taskId, status, result, error }: ChildAnswer): ChildOutcome<Result> {
  if (status === "stopped") return { taskId, status, result: result as Result };
  const known = error ?? { exception: "Error", message: `task ${taskId} was ${status}` };
  return { taskId, status: status as "failed", error: new ChildFailed(taskId, status, known) };
}
