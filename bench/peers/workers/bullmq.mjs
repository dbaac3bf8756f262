// Adds jobs, or runs them until all are done and prints how long that took.
import { Queue, Worker } from "bullmq";

const [action, tasks] = [process.argv[2], Number(process.argv[3])];
const connection = { host: "127.0.0.1", port: Number(process.env.REDIS_PORT), maxRetriesPerRequest: null };
if (action === "create") {
  const queue = new Queue("bench", { connection });
  for (let left = tasks; left > 0; left -= 1000) {
    const jobs = Array.from({ length: Math.min(left, 1000) }, () => ({ name: "noop", data: {} }));
    await queue.addBulk(jobs);
  }
  await queue.close();
} else {
  let begin;
  let done = 0;
  const concurrency = Number(process.env.CONCURRENCY);
  const worker = new Worker("bench", async () => { begin ??= performance.now(); return null; }, { connection, concurrency });
  worker.on("completed", async () => {
    done += 1;
    if (done < tasks) return;
    console.log((performance.now() - begin) / 1000);
    await worker.close();
    process.exit(0);
  });
}
