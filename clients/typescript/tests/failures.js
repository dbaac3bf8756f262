/** A reporter that prints only failed tests. */
import { inspect } from "node:util";

export default async function* failures(source) {
  for await (const { type, data } of source) {
    if (type === "test:fail")
      yield `\nFAILED ${data.file ?? ""}: ${data.name}\n${inspect(data.details.error, { depth: 5 })}\n`;
    if (type === "test:stderr") yield data.message;
  }
}
