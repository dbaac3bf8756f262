/** The package as npm installs it. */

import assert from "node:assert/strict";
import { mkdirSync, readdirSync, symlinkSync } from "node:fs";
import { createRequire } from "node:module";
import { dirname, join } from "node:path";
import { run } from "./helpers.js";

/** The folder of this package. */
export const PACKAGE = new URL("..", import.meta.url).pathname;
const resolve = createRequire(import.meta.url);

/** Installs the packed package, and links the others, into `node_modules` of the folder. */
export async function install(folder: string, ...others: string[]): Promise<void> {
  const modules = join(folder, "node_modules");
  mkdirSync(join(modules, "task-engine"), { recursive: true });
  const file = process.env.TASK_ENGINE_TEST_PACKAGE;
  assert.ok(file, "set TASK_ENGINE_TEST_PACKAGE to the packed package, or run ./test");
  const unpacked = await run("tar", ["-xzf", file, "-C", "node_modules/task-engine", "--strip-components=1"], folder);
  assert.equal(unpacked.code, 0, unpacked.stderr);
  for (const name of others) {
    const found = (resolve.resolve.paths(name) ?? []).map((path) => join(path, name)).find((path) => readable(path));
    assert.ok(found, `${name} is not installed`);
    mkdirSync(dirname(join(modules, name)), { recursive: true });
    symlinkSync(found, join(modules, name));
  }
}

function readable(path: string): boolean {
  try {
    return readdirSync(path).length > 0;
  } catch {
    return false;
  }
}
