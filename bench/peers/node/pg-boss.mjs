// pg-boss: `preload COUNT` or `work COUNT SETTINGS`.

import { PgBoss } from "pg-boss";
import { NAME, command, handle, pieces, settings, url } from "./job.mjs";

const boss = new PgBoss({ connectionString: url, useListenNotify: true });
boss.on("error", console.error);
await boss.start();

if (command === "preload") {
  // Wake-ups on: an engine that is fast only as long as it polls is another one.
  await boss.createQueue(NAME, { notify: true });
  for (const piece of pieces()) {
    await boss.insert(NAME, piece.map((data) => ({ data })));
  }
  await boss.stop();
} else {
  await boss.work(
    NAME,
    {
      batchSize: settings.batch,
      localConcurrency: settings.batches,
      // Without it, a worker sleeps half a second or more after each batch.
      burstWhenBatchFull: true,
    },
    async (jobs) => {
      for (const job of jobs) handle(job.data);
    },
  );
}
