/** The standard output belongs to the protocol. */

import { writeSync } from "node:fs";

/** Where the lines of a session go. Lines of one turn of the event loop are sent together. */
export class LineOutput {
  #lines = "";
  #scheduled = false;
  readonly #before: (() => void)[] = [];
  readonly #send: (text: string) => void;

  constructor(send: (text: string) => void) {
    this.#send = send;
  }

  /** Adds a line, without its line break. */
  line(json: string): void {
    this.#lines += `${json}\n`;
    this.#schedule();
  }

  /** Calls this once before the next lines are sent. */
  beforeSend(call: () => void): void {
    this.#before.push(call);
    this.#schedule();
  }

  flush(): void {
    for (const call of this.#before.splice(0)) call();
    this.#scheduled = false;
    if (this.#lines === "") return;
    const lines = this.#lines;
    this.#lines = "";
    this.#send(lines);
  }

  #schedule(): void {
    if (this.#scheduled) return;
    this.#scheduled = true;
    setImmediate(() => {
      this.flush();
    });
  }
}

/** Writes to file descriptor 1, whatever `process.stdout` does. */
export class StandardOutput {
  /** What is not written yet, because the pipe is full. */
  #left: Buffer[] = [];
  #closed = false;
  #whenEmpty: (() => void)[] = [];

  write(text: string): void {
    if (this.#closed) return;
    this.#left.push(Buffer.from(text));
    if (this.#left.length === 1) this.#continue();
  }

  /** Resolves when everything is written. */
  empty(): Promise<void> {
    if (this.#left.length === 0) return Promise.resolve();
    return new Promise((resolve) => this.#whenEmpty.push(resolve));
  }

  /** Before the process exits: waits for the engine to read, for a second at most. */
  drain(): void {
    const idle = new Int32Array(new SharedArrayBuffer(4));
    for (let ms = 0; ms < 1000 && !this.#writeAll(); ms++) Atomics.wait(idle, 0, 0, 1);
  }

  #continue(): void {
    if (this.#writeAll()) for (const resolve of this.#whenEmpty.splice(0)) resolve();
    else
      setTimeout(() => {
        this.#continue();
      }, 2);
  }

  /** False if the pipe is full. */
  #writeAll(): boolean {
    try {
      for (let first = this.#left[0]; first; first = this.#left[0]) {
        const written = writeSync(1, first);
        if (written < first.length) this.#left[0] = first.subarray(written);
        else this.#left.shift();
      }
    } catch (error) {
      // Node makes a pipe non-blocking when `process.stdout` is used.
      if ((error as NodeJS.ErrnoException).code === "EAGAIN") return false;
      // The engine is gone. Its end of the standard input is closed, too.
      this.#closed = true;
      this.#left = [];
    }
    return true;
  }
}

let redirected = false;

/** What code prints to the standard output goes to the standard error from now on. */
export function redirectStandardOutput(): void {
  if (redirected) return;
  redirected = true;
  process.stdout.write = process.stderr.write.bind(process.stderr);
}
