/** Runs every program and command of README.md, with the packed package. */

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { cpSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { after, before, test, type TestContext } from "node:test";
import pg from "pg";
import { BINARY, DATABASE_URL, Project, run, until } from "./helpers.js";
import { install, PACKAGE } from "./packed.js";

const blocks = [...readFileSync(join(PACKAGE, "README.md"), "utf8").matchAll(/^```(\w+)\n([\s\S]*?)^```$/gm)].map(
  ([, language, text]) => ({
    language: String(language),
    text: String(text),
  }),
);
const programs = blocks.filter(({ language }) => language === "ts").map(({ text }) => text);
const workers = programs.filter((text) => text.includes("serve(") && !text.includes("node:test"));
const others = programs.filter((text) => !workers.includes(text));

const MODULES = [
  "tsx",
  "typescript",
  "pg",
  "@types/pg",
  "@types/node",
  "postgres",
  "drizzle-orm",
  "@prisma/adapter-pg",
  "@prisma/client",
  "zod",
];

const pool = new pg.Pool({ connectionString: DATABASE_URL });
before(() =>
  pool.query(
    "CREATE TABLE IF NOT EXISTS orders (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, item text, confirmed boolean DEFAULT false)",
  ),
);
after(() => pool.end());

const TOML = String(blocks.find(({ language }) => language === "toml")?.text);

/** Runs the commands of a block, except those that this test runs itself. */
async function commands(p: Project, text: string): Promise<void> {
  for (const line of text
    .trim()
    .split("\n")
    .filter((line) => !/^(npm|task-engine start)/.test(line))) {
    const { code, stderr } = await run("sh", ["-euc", line.replace("task-engine", BINARY)], p.folder, {
      TASK_ENGINE_DATABASE_URL: p.database,
    });
    assert.equal(code, 0, `${line}: ${stderr}`);
  }
}

function commandsWith(text: string): string {
  const found = blocks.find((block) => block.language === "sh" && block.text.includes(text));
  assert.ok(found, text);
  return found.text;
}

async function project(t: TestContext, toml = TOML): Promise<Project> {
  const p = new Project(t, toml.replace('"node"', JSON.stringify(process.execPath)));
  writeFileSync(p.path("package.json"), '{ "type": "module" }');
  await install(p.folder, ...MODULES);
  return p;
}

test("all programs fit the types", async (t) => {
  const p = await project(t);
  cpSync(join(PACKAGE, "tests/generated"), p.path("generated"), { recursive: true });
  programs.forEach((text, at) => {
    writeFileSync(p.path(`program${at}.ts`), text);
  });
  const options = {
    module: "NodeNext",
    target: "ES2022",
    strict: true,
    noEmit: true,
    skipLibCheck: true,
    types: ["node"],
  };
  writeFileSync(
    p.path("tsconfig.json"),
    JSON.stringify({ compilerOptions: options, files: programs.map((_, at) => `program${at}.ts`) }),
  );
  const { code, stdout } = await run(process.execPath, ["node_modules/typescript/bin/tsc", "-p", "."], p.folder);
  assert.equal(code, 0, stdout);
});

test("the first task runs as written", async (t) => {
  const p = await project(t);
  writeFileSync(p.path("worker.ts"), String(programs[0]));
  await commands(p, commandsWith("create greet"));
  p.start();
  assert.deepEqual((await p.result(1)).result, { length: 3 });
  assert.match((await p.cli("logs", "1")).stdout, /hello/);
  // What a user writes.
  const written = [programs[0], TOML, commandsWith("create greet")]
    .join("")
    .split("\n")
    .filter((line) => line.trim() !== "");
  assert.ok(written.length <= 10, `${written.length} lines`);
});

test("the durable task runs as written", async (t) => {
  const p = await project(t);
  writeFileSync(p.path("worker.ts"), String(workers.find((text) => text.includes('"cooling off"'))));
  await commands(p, commandsWith("create order"));
  p.start();
  assert.deepEqual((await p.result(1)).result, { receipt: "receipt 1 for book", parcel: "parcel of book" });
});

test("the class with options runs as written", async (t) => {
  const p = await project(t);
  writeFileSync(p.path("worker.ts"), String(workers.find((text) => text.includes('"resize"'))));
  await p.cli("migrate");
  const [good, wide, wrong] = [
    await p.create("resize", { width: 80 }),
    await p.create("resize", { width: 99_999 }),
    await p.create("resize", { width: "80" }),
  ];
  p.start();
  assert.equal((await p.result(good)).result, "80.png");
  assert.equal((await p.result(wide)).error?.message, "a width of 99999 is too much");
  assert.match(String((await p.result(wrong)).error?.message), /^invalid parameters: width: /);
});

test("a worker connects as written", async (t) => {
  const p = await project(t, "");
  const engine = p.start(["--listen", "127.0.0.1:0"], { TASK_ENGINE_LISTEN_TOKEN: "te_of_the_readme" });
  let log = "";
  engine.child.stderr.on("data", (text: string) => (log += text));
  engine.child.stdout.on("data", (text: string) => (log += text));
  const address = await until("the engine to listen", () => /Workers connect to: (tcp:\S+)/.exec(log)?.[1]);
  writeFileSync(p.path("worker.ts"), String(programs[0]));
  const line = commandsWith("TASK_ENGINE_CONNECT=")
    .trim()
    .replace("tls://tasks.example.com:8643", address)
    .replace("=…", "=te_of_the_readme");
  const child = spawn("sh", ["-euc", `exec env ${line.replace(" node ", ` ${process.execPath} `)}`], {
    cwd: p.folder,
    stdio: "ignore",
  });
  const ended = new Promise((resolve) => child.once("close", resolve));
  t.after(() => child.kill("SIGKILL"));
  assert.deepEqual((await p.result(await p.create("greet", { name: "Ada" }))).result, { length: 3 });
  child.kill("SIGTERM");
  assert.equal(await ended, 0);
});

test("the other programs run as written", async (t) => {
  const p = await project(t);
  mkdirSync(dirname(p.path("generated/x")), { recursive: true });
  cpSync(join(PACKAGE, "tests/generated"), p.path("generated"), { recursive: true });
  const { stdout: token } = await run(
    BINARY,
    ["tokens", "create", `readme-${process.pid}`, "--role", "operator", "--database", DATABASE_URL],
    p.folder,
  );
  const web = spawn(BINARY, ["web", "127.0.0.1:0", "--web-role", "none", "--database", DATABASE_URL], {
    cwd: p.folder,
  });
  t.after(() => web.kill("SIGKILL"));
  let log = "";
  for (const stream of [web.stdout, web.stderr]) stream.setEncoding("utf8").on("data", (text: string) => (log += text));
  const url = await until("the server", () => /http:\/\/127\.0\.0\.1:\d+/.exec(log)?.[0]);
  assert.ok(others.length >= 7);
  const count = async () => Number((await pool.query<{ n: string }>("SELECT count(*) AS n FROM orders")).rows[0]?.n);
  for (const [at, text] of others.entries()) {
    const name = `other${at}.ts`;
    writeFileSync(
      p.path(name),
      text.replaceAll("postgres://localhost/tasks", DATABASE_URL).replaceAll("http://localhost:8642", url),
    );
    const orders = await count();
    const { code, stdout, stderr } = await run(process.execPath, ["--import", "tsx", name], p.folder, {
      TASK_ENGINE_TOKEN: token.trim(),
    });
    assert.equal(code, 0, `${text}${stdout}${stderr}`);
    assert.equal((await count()) - orders, text.includes("INSERT INTO orders") ? 1 : 0, text);
  }
});
