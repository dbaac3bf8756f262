/** The name and version of this package, as the announcement has them. */
export const CLIENT = "task-engine (TypeScript) 0.1.0";
