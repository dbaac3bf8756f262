// Flows of pg-boss: `preload COUNT SETTINGS` or `work COUNT SETTINGS`.
//
// pg-boss finds out in the background which jobs may start, once in `flowIntervalSeconds`,
// or when `resolveFlow()` is called. The setting `resolve` says which of the two.

import { setTimeout as sleep } from "node:timers/promises";
import { PgBoss } from "pg-boss";
import { NAME, command, count, handle, pieces, settings, url } from "./job.mjs";

const LAYERS = 20;
// Only for a job that became ready without a call of ours.
const IDLE_MS = 500;

const boss = new PgBoss({
  connectionString: url,
  useListenNotify: true,
  // The shortest that it allows.
  ...(settings.resolve === "interval" ? { flowIntervalSeconds: 1 } : {}),
});
boss.on("error", console.error);
await boss.start();

if (command === "preload") {
  await boss.createQueue(NAME, { notify: true });
  for (const piece of pieces()) {
    await boss.flow(
      piece.map((data, number) => ({
        ref: String(number),
        name: NAME,
        data,
        dependsOn: dependencies(number, piece.length).map(String),
      })),
    );
  }
  await boss.stop();
} else if (settings.resolve === "interval") {
  await workAtIntervals();
} else {
  workAtOnce();
}

// The numbers of the jobs of a flow that a job of it depends on.
function dependencies(number, size) {
  switch (settings.shape) {
    case "fan-out":
      return number > 0 ? [0] : [];
    case "fan-in":
      return number === size - 1 ? Array.from({ length: size - 1 }, (_, on) => on) : [];
    case "layers":
      return inLayers(number, Math.ceil(size / LAYERS));
    case "chain":
      return number > 0 ? [number - 1] : [];
    default:
      throw new Error(`not a shape: ${settings.shape}`);
  }
}

// Three jobs of the layer before, those that Task Engine's benchmark takes.
function inLayers(number, width) {
  const layer = Math.floor(number / width);
  if (layer === 0) return [];
  const before = (layer - 1) * width;
  const place = number % width;
  return [place, place + Math.floor(width / 3), place + Math.floor((width * 2) / 3)].map(
    (on) => before + (on % width),
  );
}

// As its documentation has it, but a worker that sleeps is woken when jobs became ready. As
// `notifyWorker` wakes only one, each worker is one call of `work`.
async function workAtIntervals() {
  const workers = [];
  boss.on("flow", () => {
    for (const worker of workers) boss.notifyWorker(worker);
  });
  for (let number = 0; number < settings.batches; number += 1) {
    const options = { batchSize: settings.batch, burstWhenBatchFull: true };
    workers.push(await boss.work(NAME, options, run));
  }
}

function run(jobs) {
  for (const job of jobs) handle(job.data);
}

// Fetches and completes by itself, as `work` says nothing after a batch is completed, and
// asks for what became ready after each batch.
function workAtOnce() {
  let idle = [];
  const wakeOthers = () => {
    for (const wake of idle) wake();
    idle = [];
  };
  const loop = async () => {
    for (;;) {
      const jobs = await boss.fetch(NAME, { batchSize: settings.batch });
      if (jobs.length === 0) {
        await Promise.race([new Promise((wake) => idle.push(wake)), sleep(IDLE_MS)]);
        continue;
      }
      if (jobs.length === settings.batch) wakeOthers();
      run(jobs);
      await boss.complete(NAME, jobs.map((job) => job.id));
      await resolveFlow();
    }
  };
  for (let number = 0; number < settings.batches; number += 1) {
    loop().catch((error) => {
      console.error(error);
      process.exit(1);
    });
  }
}

let current = Promise.resolve();
let next = null;

// One pass at a time. Calls during a pass share the next one.
function resolveFlow() {
  next ??= current.then(() => {
    next = null;
    current = boss.resolveFlow();
    return current;
  });
  return next;
}
