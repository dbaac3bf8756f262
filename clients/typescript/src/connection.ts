/** A worker that connects to an engine, and connects again when the connection is lost. */

import { readFileSync } from "node:fs";
import { connect as connectTcp, type Socket } from "node:net";
import { connect as connectTls, type TLSSocket } from "node:tls";
import { setTimeout as pause } from "node:timers/promises";
import * as check from "./check.js";
import { ConnectionRefused, InvalidArgument } from "./errors.js";
import { LineOutput } from "./output.js";
import { Session } from "./session.js";
import type { TaskDefinition } from "./task.js";

/** Where the engine listens. */
export interface Address {
  url: string;
  host?: string;
  port?: number;
  path?: string;
  tls: boolean;
  token?: string | undefined;
  name?: string | undefined;
  ca?: string | undefined;
}

const KEEPALIVE_MS = 10_000;
const CONNECT_TIMEOUT_MS = 10_000;
const LONGEST_PAUSE_S = 30;

/** Reads `tcp://HOST:PORT`, `tls://HOST:PORT` or `unix:PATH`. */
export function parseAddress(url: string): Address {
  const socket = /^unix:(?:\/\/)?(.+)$/.exec(url);
  if (socket?.[1] !== undefined) return { url, path: socket[1], tls: false };
  const parts = /^(tcp|tls):\/\/(\[[^\]]+\]|[^/:@]+):(\d+)\/?$/.exec(url);
  const port = Number(parts?.[3]);
  if (!parts?.[2] || port < 1 || port > 65_535) {
    throw new InvalidArgument(
      `connect: ${check.shown(url)} is not an address; write tcp://HOST:PORT, tls://HOST:PORT or unix:PATH`,
    );
  }
  return { url, host: parts[2].replace(/^\[|\]$/g, ""), port, tls: parts[1] === "tls" };
}

/** Serves until SIGTERM or SIGINT. An error if the engine refuses the worker. */
export async function serveConnection(
  address: Address,
  announcement: object,
  tasks: readonly TaskDefinition[],
): Promise<void> {
  const ca = address.ca === undefined ? undefined : readCertificates(address.ca);
  const { token, name } = address;
  const first = JSON.stringify({
    ...announcement,
    ...(token === undefined ? {} : { token }),
    ...(name === undefined ? {} : { name }),
  });
  const stop = new AbortController();
  const onSignal = () => {
    stop.abort();
  };
  const isStopped = () => stop.signal.aborted;
  process.once("SIGTERM", onSignal).once("SIGINT", onSignal);
  try {
    for (let seconds = 1; !stop.signal.aborted;) {
      const connection = new Connection(open(address, ca), first, tasks, stop.signal);
      const lost = await connection.ended;
      if (isStopped()) return;
      if (connection.wasConnected) seconds = 1;
      say(
        `${connection.wasConnected ? "lost the connection to" : "cannot connect to"} ${address.url}: ${lost}; connecting again in ${seconds} s`,
      );
      await pause(seconds * 1000, undefined, { signal: stop.signal }).catch(() => undefined);
      seconds = Math.min(seconds * 2, LONGEST_PAUSE_S);
    }
  } finally {
    process.removeListener("SIGTERM", onSignal).removeListener("SIGINT", onSignal);
  }
}

function readCertificates(file: string): Buffer {
  try {
    return readFileSync(file);
  } catch (error) {
    throw new InvalidArgument(`cannot read the certificate authority ${file}: ${(error as Error).message}`);
  }
}

function open({ host, port = 0, path, tls }: Address, ca: Buffer | undefined): Socket | TLSSocket {
  if (path !== undefined) return connectTcp({ path });
  const keepAlive = { keepAlive: true, keepAliveInitialDelay: KEEPALIVE_MS };
  if (!tls) return connectTcp({ host, port, ...keepAlive });
  const socket = connectTls({
    host,
    port,
    ...(ca && { ca }),
    ...(host !== undefined && /[a-z]/i.test(host) && !host.includes(":") && { servername: host }),
  });
  return socket.setKeepAlive(true, KEEPALIVE_MS);
}

function say(text: string): void {
  process.stderr.write(`task-engine: ${text}\n`);
}

class Connection {
  /** Resolves with the reason when the connection is closed. */
  readonly ended: Promise<string>;
  wasConnected = false;

  constructor(socket: Socket | TLSSocket, announcement: string, tasks: readonly TaskDefinition[], stop: AbortSignal) {
    const output = new LineOutput((text) => {
      if (!socket.destroyed) socket.write(text);
    });
    const session = new Session(tasks, output);
    const timer = setTimeout(() => socket.destroy(new Error("no answer")), CONNECT_TIMEOUT_MS);
    const onStop = () => {
      if (!this.wasConnected) socket.destroy();
      else output.line('{"stopping":true}');
    };
    stop.addEventListener("abort", onStop, { once: true });
    socket.once("tls" in socket || "getPeerCertificate" in socket ? "secureConnect" : "connect", () => {
      output.line(announcement);
    });
    this.ended = new Promise((resolve, reject) => {
      let begun = Buffer.alloc(0);
      const firstLine = (chunk: Buffer) => {
        begun = Buffer.concat([begun, chunk]);
        const end = begun.indexOf(10);
        if (end < 0) return;
        const { connected, refused, again } = parse(begun.toString("utf8", 0, end));
        if (refused !== undefined) {
          const message = `the engine refused this worker: ${refused}`;
          // Some refusals pass: an engine without its database, for example.
          if (again !== true) reject(new ConnectionRefused(message));
          socket.destroy(again === true ? new Error(message) : undefined);
          return;
        }
        if (connected === undefined) {
          socket.destroy(new Error("it does not answer as an engine"));
          return;
        }
        clearTimeout(timer);
        this.wasConnected = true;
        say(`connected as ${connected}`);
        socket.off("data", firstLine).on("data", (more: Buffer) => {
          session.data(more);
        });
        if (end + 1 < begun.length) session.data(begun.subarray(end + 1));
        if (stop.aborted) onStop();
      };
      socket.on("data", firstLine);
      let reason = "it was closed";
      socket.on("error", (error: NodeJS.ErrnoException) => {
        reason = error.message === "" ? (error.code ?? reason) : error.message;
      });
      socket.once("close", () => {
        clearTimeout(timer);
        stop.removeEventListener("abort", onStop);
        session.lost();
        resolve(reason);
      });
    });
  }
}

function parse(line: string): { connected?: string; refused?: string; again?: boolean } {
  try {
    const fields: unknown = JSON.parse(line);
    if (!check.isObject(fields)) return {};
    if (typeof fields.connected === "string") return { connected: fields.connected };
    return typeof fields.refused === "string" ? { refused: fields.refused, again: fields.again === true } : {};
  } catch {
    return {};
  }
}
