/** The results of tasks that a task depends on. */

import { shown } from "./check.js";
import type { Dependency } from "./context.js";
import { InvalidArgument, TaskEngineError } from "./errors.js";

/** The result of a dependency: for the real context and for that of tests. */
export function resultOf(dependencies: Readonly<Record<string, Dependency>>, name: string | number): unknown {
  const found = Object.hasOwn(dependencies, name)
    ? dependencies[name]
    : Object.values(dependencies).find(({ id }) => id === name);
  if (!found) {
    const names = Object.keys(dependencies);
    throw new InvalidArgument(
      `this task does not depend on ${shown(name)}; it depends on ${names.length === 0 ? "no task" : names.join(", ")}`,
    );
  }
  if (found.status !== "stopped") {
    const error = typeof found.error === "object" ? found.error : { exception: "Error", message: found.error ?? "" };
    throw new TaskEngineError(`${name} did not succeed (${found.status}): ${error.exception}: ${error.message}`);
  }
  if (found.result_omitted)
    throw new TaskEngineError(`the result of ${name} was too long to be sent; read task ${found.id}`);
  return found.result;
}
