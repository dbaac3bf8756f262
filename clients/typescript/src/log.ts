/** Log lines, joined into few lines of the protocol. */

/** Longer lines are cut by the engine. */
const LINE_CHARS_MAX = 8193;
/** A line of the protocol may be 64 KiB long if the class allows only short results. */
const BYTES_MAX = 60_000;

/** JSON lists of log lines, each short enough for a line of the protocol. */
export function* joined(texts: readonly string[]): Generator<string> {
  let list: string[] = [];
  let bytes = 0;
  for (const text of texts) {
    for (const line of text.split("\n")) {
      const json = JSON.stringify(line.length > LINE_CHARS_MAX ? line.slice(0, LINE_CHARS_MAX) : line);
      const more = Buffer.byteLength(json) + 1;
      if (bytes + more > BYTES_MAX) {
        yield `[${list.join(",")}]`;
        list = [];
        bytes = 0;
      }
      list.push(json);
      bytes += more;
    }
  }
  if (list.length > 0) yield `[${list.join(",")}]`;
}
