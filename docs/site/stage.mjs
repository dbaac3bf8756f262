// Copies the Markdown of the project and its pictures into a folder, as VitePress wants them: a
// README.md is an index.md, and a link to a file that is no page leads to the repository.
import fs from "node:fs";
import path from "node:path";

const REPOSITORY = "https://github.com/task-engine/task-engine/blob/main/";
const [top, out] = process.argv.slice(2);

const folders = ["", "docs", "examples"];
for (const parent of ["clients", "examples"]) {
  if (!fs.existsSync(path.join(top, parent))) continue;
  for (const name of fs.readdirSync(path.join(top, parent))) {
    if (fs.existsSync(path.join(top, parent, name, "README.md"))) folders.push(`${parent}/${name}`);
  }
}

const pages = folders.flatMap((folder) =>
  fs.readdirSync(path.join(top, folder))
    .filter((name) => name.endsWith(".md"))
    .map((name) => path.posix.join(folder, name)),
);

const staged = (page) => page.replace(/(^|\/)README\.md$/, "$1index.md");

/** The target of a link on a page, for the site. */
function target(page, link) {
  if (/^([a-z]+:|#)/.test(link)) return link;
  const [file, anchor] = link.split("#");
  const found = path.posix.normalize(path.posix.join(path.posix.dirname(page), file));
  const suffix = anchor === undefined ? "" : `#${anchor}`;
  if (pages.includes(found)) return file.replace(/README\.md$/, "index.md") + suffix;
  if (/\.(png|svg)$/.test(file)) return link;
  if (!fs.existsSync(path.join(top, found))) throw new Error(`${page}: ${link} does not exist`);
  return REPOSITORY + found + suffix;
}

for (const page of pages) {
  let inCode = false;
  const lines = fs.readFileSync(path.join(top, page), "utf8").split("\n").map((line) => {
    if (line.startsWith("```")) inCode = !inCode;
    if (inCode) return line;
    return line.replace(/\]\(([^)\s]+)\)/g, (_, link) => `](${target(page, link)})`);
  });
  const file = path.join(out, staged(page));
  fs.mkdirSync(path.dirname(file), { recursive: true });
  fs.writeFileSync(file, lines.join("\n"));
}
fs.cpSync(path.join(top, "docs/images"), path.join(out, "docs/images"), { recursive: true });
