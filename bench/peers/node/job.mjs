// What both Node peers share: the job that does nothing, and how a worker tells
// that it has run the last one.

export const NAME = "no_op";

// Jobs are given in pieces of this size, by every system.
export const PIECE = 10_000;

export const [command, countText, settingsText = "{}"] = process.argv.slice(2);
export const count = Number(countText);
export const settings = JSON.parse(settingsText);
export const url = process.env.DATABASE_URL;

let handled = 0;

// Says nothing before the last job: a line a job would measure the pipe.
export function handle(payload) {
  if (typeof payload.id !== "number") throw new Error("a job without its id");
  handled += 1;
  if (handled === count) process.stdout.write("handled\n");
}

export function* pieces() {
  for (let from = 0; from < count; from += PIECE) {
    const size = Math.min(PIECE, count - from);
    yield Array.from({ length: size }, (_, place) => ({ id: from + place }));
  }
}
