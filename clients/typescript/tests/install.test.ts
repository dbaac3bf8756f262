/** The commands of README.md that install the package, in a clone that has no packages. */

import assert from "node:assert/strict";
import { cpSync, existsSync, mkdirSync, readFileSync, symlinkSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { dirname, join } from "node:path";
import { test } from "node:test";
import { folder, run } from "./helpers.js";
import { PACKAGE } from "./packed.js";

const resolve = createRequire(import.meta.url).resolve;

test("the package is installed from a fresh clone", async (t) => {
  const place = folder(t);
  const clone = join(place, "task-engine/clients/typescript");
  const leftOut = ["node_modules", "dist", "build", ".compiler", "tests"];
  cpSync(PACKAGE, clone, { recursive: true, filter: (path) => !leftOut.some((name) => path === join(PACKAGE, name)) });
  // What `compile` installs, without the registry.
  const compiler = join(clone, ".compiler/node_modules");
  mkdirSync(join(compiler, "@types"), { recursive: true });
  for (const name of ["typescript", "@types/node"]) {
    symlinkSync(dirname(resolve(`${name}/package.json`)), join(compiler, name));
  }
  const project = join(place, "project");
  mkdirSync(project);
  const page = readFileSync(join(PACKAGE, "README.md"), "utf8");
  const commands = /^```sh\n(npm init[\s\S]*?)^```$/m.exec(page)?.[1] ?? "";
  assert.match(commands, /^npm install \.\.\/task-engine\/clients\/typescript tsx$/m);
  // tsx is from the registry.
  const done = await run("sh", ["-euc", commands.replace("typescript tsx", "typescript --offline")], project);
  assert.equal(done.code, 0, done.stderr);
  assert.ok(existsSync(join(project, "node_modules/task-engine/dist/index.d.ts")));
  writeFileSync(join(project, "main.js"), 'import { task } from "task-engine"; console.log(typeof task);');
  const ran = await run(process.execPath, ["main.js"], project);
  assert.equal(ran.stdout, "function\n", ran.stderr);
});
