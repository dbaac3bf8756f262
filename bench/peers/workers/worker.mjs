import { serve, task } from "task-engine";

task("noop", async () => null);

await serve({ concurrency: Number(process.env.CONCURRENCY) });
