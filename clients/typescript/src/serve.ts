/** Runs the registered tasks: for the engine that started this program, or over a connection. */

import * as check from "./check.js";
import { serveConnection, type Address, parseAddress } from "./connection.js";
import { milliseconds, type Duration } from "./duration.js";
import { InvalidArgument } from "./errors.js";
import { LineOutput, redirectStandardOutput, StandardOutput } from "./output.js";
import { Session } from "./session.js";
import { registeredTasks, type TaskDefinition } from "./task.js";
import { CLIENT } from "./version.js";

export interface ServeOptions {
  /** How many tasks run at a time in this process. Default: 10. */
  concurrency?: number;
  /** The tasks. Default: all that were registered. */
  tasks?: readonly Pick<TaskDefinition, "class">[];
  /**
   * How long code after `serve` may take, for example to close connections. Then the process
   * exits. Default: 2 s; `null`: it exits when nothing keeps it alive.
   */
  exitAfter?: Duration | null;
  /** The engine: `tcp://HOST:PORT`, `tls://HOST:PORT` or `unix:PATH`. Default: `TASK_ENGINE_CONNECT`. */
  connect?: string;
  /** Default: `TASK_ENGINE_LISTEN_TOKEN`. */
  token?: string;
  /** How `task-engine instances` calls this worker. */
  name?: string;
  /** A file with the certificate authority of the engine. Default: `TASK_ENGINE_CONNECT_CA`. */
  ca?: string;
}

const OPTIONS = check.object({
  concurrency: ["concurrency", check.whole(1, 10_000)],
  tasks: ["tasks", (value) => value],
  exitAfter: ["exitAfter", (value, where) => (value === null ? null : check.durationMs(value, where))],
  connect: ["connect", check.text],
  token: ["token", check.text],
  name: ["name", check.name],
  ca: ["ca", check.text],
});

/**
 * Announces the tasks and runs them until the engine ends this worker. If the engine has started
 * it, the standard output belongs to the protocol: what code prints there goes to the standard
 * error from this call on.
 */
export async function serve(options: ServeOptions = {}): Promise<void> {
  OPTIONS(options, "serve");
  const tasks = (options.tasks ?? registeredTasks()) as readonly TaskDefinition[];
  if (tasks.length === 0)
    throw new InvalidArgument(
      'serve: there are no tasks; register one before: task("greet", async (ctx, parameters) => …)',
    );
  const announcement = {
    protocol: 1,
    classes: tasks.map((task) => task.announcement),
    concurrency: options.concurrency ?? 10,
    client: CLIENT,
  };
  const address = connectAddress(options);
  if (address) await serveConnection(address, announcement, tasks);
  else await serveStandardInput(announcement, tasks);
  const exitAfter = options.exitAfter === undefined ? 2 : options.exitAfter;
  // A forgotten connection must not keep a worker alive that has ended.
  if (exitAfter !== null) setTimeout(() => process.exit(), milliseconds(exitAfter)).unref();
}

function connectAddress(options: ServeOptions): Address | undefined {
  const { TASK_ENGINE_CONNECT, TASK_ENGINE_LISTEN_TOKEN, TASK_ENGINE_CONNECT_CA } = process.env;
  const url = options.connect ?? (TASK_ENGINE_CONNECT === "" ? undefined : TASK_ENGINE_CONNECT);
  if (url === undefined) return undefined;
  return {
    ...parseAddress(url),
    token: options.token ?? (TASK_ENGINE_LISTEN_TOKEN === "" ? undefined : TASK_ENGINE_LISTEN_TOKEN),
    name: options.name,
    ca: options.ca ?? (TASK_ENGINE_CONNECT_CA === "" ? undefined : TASK_ENGINE_CONNECT_CA),
  };
}

async function serveStandardInput(announcement: object, tasks: readonly TaskDefinition[]): Promise<void> {
  redirectStandardOutput();
  const { stdin } = process;
  if (stdin.isTTY)
    process.stderr.write("This is a worker. Name it in task-engine.toml, and let `task-engine start` start it.\n");
  const standardOutput = new StandardOutput();
  const output = new LineOutput((text) => {
    standardOutput.write(text);
  });
  const session = new Session(tasks, output);
  // A log line before `process.exit` is not lost.
  process.once("exit", () => {
    output.flush();
    standardOutput.drain();
  });
  output.line(JSON.stringify(announcement));
  output.flush();
  await new Promise<void>((resolve) => {
    stdin.on("data", (chunk: Buffer) => {
      session.data(chunk);
    });
    stdin.once("end", resolve);
    stdin.once("error", () => {
      resolve();
    });
  });
  session.inputClosed();
  await session.idle();
  output.flush();
  await standardOutput.empty();
}
