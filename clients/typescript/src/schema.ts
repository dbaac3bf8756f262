/** Schemas of parameters: Standard Schema (zod, valibot, arktype, …), or an object with `safeParse`. */

import { InvalidParameters, TaskEngineError } from "./errors.js";

interface Issue {
  readonly message: string;
  readonly path?: readonly (PropertyKey | { readonly key: PropertyKey })[] | undefined;
}

type Validated<Output> =
  { readonly value: Output; readonly issues?: undefined } | { readonly issues: readonly Issue[] };

/** The part of https://standardschema.dev that is used here. */
export interface StandardSchema<Input = unknown, Output = Input> {
  readonly "~standard": {
    readonly version: 1;
    readonly vendor: string;
    readonly validate: (value: unknown) => Validated<Output> | Promise<Validated<Output>>;
    readonly types?: { readonly input: Input; readonly output: Output } | undefined;
  };
}

/** An object with the `safeParse` of zod. */
export interface SafeParse<Output = unknown> {
  safeParse(value: unknown): { success: true; data: Output } | { success: false; error: { issues: readonly Issue[] } };
}

export type Schema = StandardSchema | SafeParse;

/** The type of the values that a schema takes. */
export type SchemaInput<S> =
  S extends StandardSchema<infer Input, unknown> ? Input : S extends SafeParse<infer Output> ? Output : never;

/** The type of the values that it returns. */
export type SchemaOutput<S> =
  S extends StandardSchema<unknown, infer Output> ? Output : S extends SafeParse<infer Output> ? Output : never;

export function isSchema(value: unknown): value is Schema {
  if ((typeof value !== "object" && typeof value !== "function") || value === null) return false;
  if ("~standard" in value) return typeof (value as StandardSchema)["~standard"].validate === "function";
  return "safeParse" in value && typeof value.safeParse === "function";
}

/** The parameters as the schema returns them. The error names the parameter. */
export async function validate(schema: Schema, parameters: unknown): Promise<unknown> {
  if ("~standard" in schema) {
    const result = await schema["~standard"].validate(parameters);
    if (result.issues) throw new InvalidParameters(describe(result.issues));
    return result.value;
  }
  const result = schema.safeParse(parameters);
  if (!result.success) throw new InvalidParameters(describe(result.error.issues));
  return result.data;
}

function describe(issues: readonly Issue[]): string {
  const each = issues.slice(0, 10).map(({ path, message }) => {
    const names = (path ?? []).map((part) => String(typeof part === "object" ? part.key : part));
    return names.length === 0 ? message : `${names.join(".")}: ${message}`;
  });
  return `invalid parameters: ${each.join("; ")}`;
}

/** The JSON Schema, if the schema can give it: by Standard JSON Schema, or by a method. */
export function jsonSchemaOf(schema: Schema): unknown {
  const target = "draft-2020-12";
  const standard = "~standard" in schema ? (schema["~standard"] as { jsonSchema?: { input?: unknown } }) : undefined;
  const own = schema as { toJSONSchema?: unknown; toJsonSchema?: unknown };
  try {
    if (isMethod(standard?.jsonSchema?.input)) return standard.jsonSchema.input({ target });
    if (isMethod(own.toJSONSchema)) return own.toJSONSchema({ io: "input" });
    if (isMethod(own.toJsonSchema)) return own.toJsonSchema();
  } catch (error) {
    // A transformation or a date has no JSON Schema. It only informs people, so go without.
    if (error instanceof TaskEngineError) throw error;
  }
  return undefined;
}

function isMethod(value: unknown): value is (options?: object) => unknown {
  return typeof value === "function";
}
