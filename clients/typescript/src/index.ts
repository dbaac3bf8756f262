/** The TypeScript client of Task Engine: creates tasks, and runs workers. */

export { create, createFlow, createMany, signal, signalUnique } from "./create.js";
export type {
  CallOptions as RequestOptions,
  Client,
  Created,
  CreatedFlow,
  CreateOptions,
  Flow,
  FlowTask,
  NewTask,
  SignalStatus,
  SqlClient,
  Unique,
} from "./create.js";
export { HttpClient, type HttpOptions } from "./http.js";
export { task, type AnyTask, type ChildTask, type Handler, type TaskDefinition, type TaskOptions } from "./task.js";
export type { CallOptions, ChildOutcome, Context, Dependency } from "./context.js";
export { serve, type ServeOptions } from "./serve.js";
export type { ClassOptions, Limit, Rate, RetryRule } from "./options.js";
export type { Schema, StandardSchema, SafeParse } from "./schema.js";
export type { Duration } from "./duration.js";
export {
  Cancelled,
  ChildFailed,
  ConnectionRefused,
  DatabaseError,
  HttpError,
  InvalidArgument,
  InvalidParameters,
  NoRetry,
  RateLimited,
  ResultNotJson,
  ResultTooLong,
  RetryAfter,
  Snooze,
  TaskEngineError,
  WaitTimedOut,
} from "./errors.js";
export type { Problem, RecordedError } from "./errors.js";
