// The settings of the site. The list of pages is that of docs/README.md.
import fs from "node:fs";
import path from "node:path";
import { fileURLToPath } from "node:url";

const pages = path.join(path.dirname(fileURLToPath(import.meta.url)), "..");

function sidebar() {
  const groups = [];
  for (const line of fs.readFileSync(path.join(pages, "docs/index.md"), "utf8").split("\n")) {
    const heading = line.match(/^\*\*(.+)\*\*$/);
    const page = line.match(/^\d+\. \[(.+?)\]\((.+?)\.md\)/);
    if (heading) groups.push({ text: heading[1], items: [] });
    if (page) groups.at(-1).items.push({ text: page[1], link: `/docs/${page[2]}` });
  }
  // Each language has a page of its own, in the folder of its package.
  const clients = groups.flatMap((group) => group.items).find((page) => page.link === "/docs/clients");
  clients.items = ["Python", "TypeScript", "Ruby"].map((name) => ({
    text: name,
    link: `/clients/${name.toLowerCase()}/`,
  }));
  groups.push({
    text: "The project",
    items: [
      { text: "Architecture", link: "/ARCHITECTURE" },
      { text: "Security", link: "/SECURITY" },
      { text: "Examples", link: "/examples/" },
      { text: "Changelog", link: "/CHANGELOG" },
    ],
  });
  return groups;
}

/** Anchors as GitHub makes them, which the links of the documents use. */
const slugify = (heading) =>
  heading.trim().toLowerCase().replace(/[^\p{L}\p{N} _-]/gu, "").replace(/ /g, "-");

export default {
  title: "Task Engine",
  description: "Background tasks for any application, on PostgreSQL or SQLite",
  lang: "en",
  cleanUrls: false,
  ignoreDeadLinks: "localhostLinks",
  markdown: { anchor: { slugify } },
  vite: { build: { chunkSizeWarningLimit: 4000 } },
  themeConfig: {
    nav: [
      { text: "Start", link: "/docs/start" },
      { text: "Guide", link: "/docs/" },
      { text: "Recipes", link: "/docs/recipes" },
      { text: "Repairing", link: "/docs/repairing" },
    ],
    sidebar: sidebar(),
    outline: { level: [2, 3] },
    search: { provider: "local" },
    docFooter: { prev: false, next: false },
    socialLinks: [{ icon: "github", link: "https://github.com/task-engine/task-engine" }],
  },
};
