#!/usr/bin/env node
// {"title": "Héllo, World"} in, {"slug": "hello-world"} out.
const { title } = JSON.parse(require("fs").readFileSync(0, "utf8"));
if (typeof title !== "string") {
  console.error("title is missing");
  process.exit(100); // do not retry
}
const slug = title
  .normalize("NFD")
  .replace(/[\u0300-\u036f]/g, "")
  .toLowerCase()
  .replace(/[^a-z0-9]+/g, "-")
  .replace(/^-|-$/g, "");
console.error(`${title.length} characters`);
console.log(JSON.stringify({ slug }));
