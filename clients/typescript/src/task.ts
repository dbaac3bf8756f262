/** Tasks: functions that are registered under the name of a class. */

import * as check from "./check.js";
import type { CallOptions, Context } from "./context.js";
import { create, type Client, type Created, type CreateOptions } from "./create.js";
import { InvalidArgument, InvalidParameters } from "./errors.js";
import { announcedOptions, type ClassOptions } from "./options.js";
import { isSchema, jsonSchemaOf, validate, type Schema, type SchemaInput, type SchemaOutput } from "./schema.js";

export type Handler<Parameters, Result> = (context: Context, parameters: Parameters) => Result | Promise<Result>;

/** The options of a task: those of its class, and the schema of its parameters. */
export interface TaskOptions<S extends Schema = Schema> extends ClassOptions {
  /** Checks the parameters before the function runs. */
  parameters?: S;
  /** The JSON Schema of the parameters, if the schema cannot give it itself. */
  jsonSchema?: object;
}

/** A task: see `task`. */
export interface TaskDefinition<Input = never, Result = unknown> {
  /** The name of its class. */
  readonly class: string;
  /** The queue and the priority of new tasks. */
  readonly queue: string | undefined;
  readonly priority: number | undefined;
  readonly resultBytes: number | undefined;
  /** Its part of the announcement of a worker. */
  readonly announcement: Readonly<Record<string, unknown>>;
  /** Creates a task. See `create`. */
  create(client: Client, parameters: Input, options?: CreateOptions): Promise<Created>;
  /** Checks the parameters and runs the function: for workers and tests. */
  run(context: Context, parameters: unknown): Promise<Result>;
}

/** Any task, whatever its parameters are. */
export type AnyTask<Result = unknown> = Pick<TaskDefinition<never, Result>, "class" | "queue" | "priority" | "run">;

/** A task that a durable task creates. */
export interface ChildTask<Result = unknown> extends CallOptions {
  class: string | AnyTask<Result>;
  parameters?: object;
}

const registered = new Map<string, TaskDefinition>();

/** The tasks of this program. */
export function registeredTasks(): readonly TaskDefinition[] {
  return [...registered.values()];
}

/** Registers a function as the tasks of a class. */
export function task<Parameters = Record<string, unknown>, Result = unknown>(
  name: string,
  handler: Handler<Parameters, Result>,
): TaskDefinition<Parameters, Result>;
export function task<S extends Schema, Result = unknown>(
  name: string,
  options: TaskOptions<S> & { parameters: S },
  handler: Handler<SchemaOutput<S>, Result>,
): TaskDefinition<SchemaInput<S>, Result>;
export function task<Parameters = Record<string, unknown>, Result = unknown>(
  name: string,
  options: TaskOptions & { parameters?: undefined },
  handler: Handler<Parameters, Result>,
): TaskDefinition<Parameters, Result>;
export function task(
  name: string,
  second: TaskOptions | Handler<never, unknown>,
  third?: Handler<never, unknown>,
): TaskDefinition {
  const [options, handler] = typeof second === "function" ? [{}, second] : [second, third];
  const definition = define(name, options, handler);
  if (registered.has(name))
    throw new InvalidArgument(`task ${check.shown(name)} is registered twice; give one of them another name`);
  registered.set(name, definition);
  return definition;
}

function define(name: string, options: TaskOptions, handler: unknown): TaskDefinition {
  check.name(name, "the class of a task");
  const where = `task ${check.shown(name)}`;
  if (typeof handler !== "function")
    check.invalid(
      where,
      `${check.shown(handler)} is not a function; write task("${name}", async (ctx, parameters) => …)`,
    );
  const { parameters: schema, jsonSchema, queue, priority, resultBytes } = options;
  const announced = announcedOptions(options, where, ["parameters", "jsonSchema"]);
  if (schema !== undefined && !isSchema(schema)) {
    check.invalid(where, "parameters is no schema; pass one of zod, valibot, arktype or another with Standard Schema");
  }
  if (jsonSchema !== undefined && !check.isObject(jsonSchema)) check.invalid(where, "jsonSchema is not an object");
  const document = jsonSchema ?? (schema && jsonSchemaOf(schema));
  const run = handler as Handler<unknown, unknown>;
  const definition: TaskDefinition = {
    class: name,
    queue,
    priority,
    resultBytes,
    announcement: { class: name, ...announced, ...(document === undefined ? {} : { schema: document }) },
    create: (client: Client, parameters: object, more?: CreateOptions) => create(client, definition, parameters, more),
    run: schema
      ? async (context, parameters) => run(context, await validate(schema, parameters))
      : // eslint-disable-next-line @typescript-eslint/require-await -- errors are rejections
        async (context, parameters) => {
          if (!check.isObject(parameters)) throw new InvalidParameters("the parameters are not an object");
          return run(context, parameters);
        },
  };
  return definition;
}
