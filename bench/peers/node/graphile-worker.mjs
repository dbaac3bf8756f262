// graphile-worker (Node): `preload COUNT` or `work COUNT SETTINGS`.

import { Logger, makeWorkerUtils, run } from "graphile-worker";
import { NAME, command, count, handle, pieces, settings, url } from "./job.mjs";

// It writes a line for each job by default, which nobody keeps at these rates.
const logger = new Logger(() => (level, message) => {
  if (level === "error") console.error(message);
});

if (command === "preload") {
  const utils = await makeWorkerUtils({ connectionString: url, logger });
  await utils.migrate();
  for (const piece of pieces()) {
    await utils.addJobs(piece.map((payload) => ({ identifier: NAME, payload })));
  }
  await utils.release();
} else {
  const runner = await run({
    preset: {
      worker: {
        connectionString: url,
        logger,
        concurrentJobs: settings.concurrency,
        maxPoolSize: settings.connections,
        localQueue: { size: settings.local_queue },
        completeJobBatchDelay: settings.complete_delay_ms,
        failJobBatchDelay: settings.complete_delay_ms,
      },
    },
    taskList: { [NAME]: handle },
  });
  await runner.promise;
}
