// pg-boss: `preload COUNT SETTINGS`, `work COUNT SETTINGS` or `check COUNT SETTINGS`.
//
// With the settings `keys` and `max`, each job belongs to one of `keys` groups, of which
// at most `max` jobs may be active at a time, over all processes. `check` runs jobs that
// take `hold_ms`, and prints how many of one group ran at a time.

import { setTimeout as sleep } from "node:timers/promises";
import { PgBoss } from "pg-boss";
import { NAME, command, count, handle, pieces, settings, url } from "./job.mjs";

const boss = new PgBoss({ connectionString: url, useListenNotify: true });
boss.on("error", console.error);
await boss.start();

if (command === "preload") {
  // Wake-ups on: an engine that is fast only as long as it polls is another one.
  await boss.createQueue(NAME, { notify: true });
  for (const piece of pieces()) {
    await boss.insert(NAME, piece.map((data) => ({ data, ...group(data.id) })));
  }
  await boss.stop();
} else if (settings.max) {
  await workLimited(command === "check" ? counted() : run);
} else {
  await boss.work(
    NAME,
    {
      batchSize: settings.batch,
      localConcurrency: settings.batches,
      // Without it, a worker sleeps half a second or more after each batch.
      burstWhenBatchFull: true,
    },
    run,
  );
}

async function run(jobs) {
  for (const job of jobs) handle(job.data);
}

// The first job is of the first group, the next one of the next group, and so on.
function group(id) {
  return settings.keys ? { group: { id: `customer-${(id % settings.keys) + 1}` } } : {};
}

// A limit makes batches that are not full, after which a worker sleeps for half a second
// at least, however much waits. So each batch wakes all workers, and as `notifyWorker`
// wakes only one, each worker is one call of `work`.
async function workLimited(handler) {
  const workers = [];
  for (let number = 0; number < settings.batches; number += 1) {
    const worker = await boss.work(
      NAME,
      {
        batchSize: settings.batch,
        groupConcurrency: settings.max,
        burstWhenBatchFull: true,
        // The shortest that it allows.
        pollingIntervalSeconds: 0.5,
        notifyPollingIntervalSeconds: 0.5,
      },
      async (jobs) => {
        await handler(jobs);
        for (const each of workers) boss.notifyWorker(each);
      },
    );
    workers.push(worker);
  }
}

// Counts the jobs of each group that are in a handler at the same time.
function counted() {
  const running = new Map();
  let handled = 0;
  let peak = 0;
  let tooMany = 0;
  return async (jobs) => {
    for (const { groupId } of jobs) {
      const now = (running.get(groupId) ?? 0) + 1;
      running.set(groupId, now);
      peak = Math.max(peak, now);
      if (now > settings.max) tooMany += 1;
    }
    await sleep(settings.hold_ms);
    for (const { groupId } of jobs) running.set(groupId, running.get(groupId) - 1);
    handled += jobs.length;
    if (handled >= count) process.stdout.write(`${JSON.stringify({ peak, too_many: tooMany })}\n`);
  };
}
