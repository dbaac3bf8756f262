/** The tasks that an engine has given to this worker, over one connection. */

import { Attempt, type AttemptHost, type TaskLine } from "./attempt.js";
import { isObject } from "./check.js";
import { TaskEngineError } from "./errors.js";
import type { LineOutput } from "./output.js";
import type { TaskDefinition } from "./task.js";

/** The class of a task is none of this worker. */
class UnknownClass extends TaskEngineError {}

export class Session implements AttemptHost {
  readonly output: LineOutput;
  isClosed = false;
  readonly #tasks: Map<string, TaskDefinition>;
  readonly #attempts = new Map<string, Attempt>();
  #whenIdle: (() => void)[] = [];
  /** The begin of a line that has not ended yet. */
  #begun: Buffer[] = [];

  constructor(tasks: readonly TaskDefinition[], output: LineOutput) {
    this.#tasks = new Map(tasks.map((task) => [task.class, task]));
    this.output = output;
  }

  /** Bytes of the engine. */
  data(chunk: Buffer): void {
    const end = chunk.lastIndexOf(10);
    if (end < 0) {
      this.#begun.push(chunk);
      return;
    }
    const whole =
      this.#begun.length === 0 ? chunk.subarray(0, end) : Buffer.concat([...this.#begun, chunk.subarray(0, end)]);
    this.#begun = end + 1 < chunk.length ? [chunk.subarray(end + 1)] : [];
    for (const line of whole.toString("utf8").split("\n")) this.line(line);
  }

  /** A line of the engine. Lines that are unknown are ignored: later versions may add some. */
  line(text: string): void {
    let line: unknown;
    try {
      line = JSON.parse(text);
    } catch {
      return;
    }
    if (!isObject(line)) return;
    if (typeof line.cancel === "string") this.#attempts.get(line.cancel)?.cancel();
    else if (typeof line.id !== "string") return;
    else if (typeof line.class === "string" && Object.hasOwn(line, "parameters"))
      this.#start(line as unknown as TaskLine);
    else this.#attempts.get(line.id)?.receive(line);
  }

  #start(line: TaskLine): void {
    const attempt = new Attempt(line, this);
    this.#attempts.set(line.id, attempt);
    const definition = this.#tasks.get(line.class);
    if (definition) void attempt.run(definition, line.parameters);
    else
      attempt.fail(
        new UnknownClass(
          `this worker has no task ${JSON.stringify(line.class)}; it has ${[...this.#tasks.keys()].join(", ")}`,
        ),
      );
  }

  ended(attempt: Attempt): void {
    this.#attempts.delete(attempt.id);
    if (this.#attempts.size === 0) for (const resolve of this.#whenIdle.splice(0)) resolve();
  }

  /** The engine sends nothing more, and still takes answers. */
  inputClosed(): void {
    this.isClosed = true;
    for (const attempt of [...this.#attempts.values()]) attempt.inputClosed();
  }

  /** The connection is lost: its tasks have ended, whatever their code does. */
  lost(): void {
    this.isClosed = true;
    for (const attempt of [...this.#attempts.values()]) attempt.lose();
  }

  /** Resolves when it has no tasks. */
  idle(): Promise<void> {
    if (this.#attempts.size === 0) return Promise.resolve();
    return new Promise((resolve) => this.#whenIdle.push(resolve));
  }
}
