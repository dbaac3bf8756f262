// Pages work without this script. With it they update themselves and have keyboard shortcuts.
"use strict";

(() => {
  const page = document.body;
  const $ = (selector, from = document) => from.querySelector(selector);
  const $$ = (selector, from = document) => [...from.querySelectorAll(selector)];
  // Read aloud by screen readers.
  const status = $("#announcement");
  const announce = (text) => { if (status) status.textContent = text; };

  // The only place where text becomes a document. Scripts in it do not run, and
  // only pages of this server are parsed.
  const policy = window.trustedTypes
    ? window.trustedTypes.createPolicy("task-engine", { createHTML: (text) => text })
    : { createHTML: (text) => text };
  const parse = (text) => new DOMParser().parseFromString(policy.createHTML(text), "text/html");

  // ---- Live updates --------------------------------------------------------
  // The server reports that something changed. The page is then read again, and
  // the regions marked data-live are morphed, so that focus, selection and open
  // details stay.

  // What the user has changed stays: open details, entered values, the current row.
  const isOwn = (name, node) =>
    (name === "open" && node.nodeName === "DETAILS") ||
    ((name === "value" || name === "checked") && /^(INPUT|TEXTAREA|SELECT|OPTION)$/.test(node.nodeName)) ||
    (name === "class" && node.classList.contains("at"));
  const callbacks = {
    beforeAttributeUpdated: (name, node) => !isOwn(name, node),
    beforeNodeMorphed: (node) => !/^(TEXTAREA|SELECT)$/.test(node.nodeName),
    afterNodeAdded: (node) => { if (node.nodeName === "TR") node.classList.add("fresh"); },
  };
  // Idiomorph matches nodes by id. A key is unique in its region only.
  function setIds(root) {
    const keyed = $$("[data-key]:not([id])", root);
    if (root.dataset.key && !root.id) keyed.unshift(root);
    for (const node of keyed) {
      const owner = node.parentElement.closest("[id]");
      node.id = `${owner ? owner.id : ""}-${node.dataset.key}`;
    }
  }
  function morph(old, fresh) {
    setIds(old);
    setIds(fresh);
    window.Idiomorph.morph(old, fresh, { callbacks });
  }

  // New rows wait behind a button while the user points at the table, works in
  // it, or has scrolled down: nothing moves under the pointer.
  function isInUse(region) {
    return region.matches(":hover") || region.contains(document.activeElement) ||
      window.scrollY > 150 || $("input[name=ids]:checked", region) !== null;
  }

  function apply(region, fresh, force) {
    const body = region.hasAttribute("data-hold") ? $("tbody", region) : null;
    const pill = body && $("[data-pill]");
    if (!body || force || !isInUse(region)) {
      morph(region, fresh);
      if (pill) pill.hidden = true;
      return;
    }
    const rows = new Map($$("tr[data-key]", fresh).map((row) => [row.dataset.key, row]));
    const mine = $$("tr[data-key]", body);
    for (const row of mine) {
      const next = rows.get(row.dataset.key);
      if (next) morph(row, next);
      rows.delete(row.dataset.key);
    }
    if (pill && rows.size > 0) {
      const text = `${rows.size} new`;
      if (pill.textContent !== text) { pill.textContent = text; announce(text); }
      pill.hidden = false;
      pill.onclick = () => apply(region, fresh, true);
    }
  }

  let reading = false;
  let again = false;
  async function refresh() {
    if (reading) { again = true; return; }
    reading = true;
    try {
      const url = new URL(location.href);
      url.searchParams.delete("done");
      const answer = await fetch(url, { headers: { accept: "text/html" }, credentials: "same-origin" });
      if (!answer.ok || answer.redirected) return;
      const fresh = parse(await answer.text());
      for (const region of $$("[data-live]")) {
        const next = fresh.getElementById(region.id);
        if (next) apply(region, next, false);
      }
    } catch { /* The server does not answer: the next event comes when it does. */ } finally {
      reading = false;
      if (again) { again = false; later(); }
    }
  }

  let waits = 0;
  function later() {
    if (!waits) waits = setTimeout(() => { waits = 0; refresh(); }, 1000);
  }

  const live = $("#live");
  let events = null;
  let lastEvent = "";
  function listen() {
    if (events || document.hidden || !page.dataset.events || live.getAttribute("aria-pressed") === "false") return;
    events = new EventSource(page.dataset.events);
    // The first event refreshes, too: the page may be older than it.
    events.addEventListener("stats", (event) => {
      if (event.lastEventId !== lastEvent) { lastEvent = event.lastEventId; later(); }
    });
  }
  function stopListening() {
    if (events) { events.close(); events = null; }
  }
  if (live && $("[data-live]")) {
    live.hidden = false;
    live.addEventListener("click", () => {
      const on = live.getAttribute("aria-pressed") !== "true";
      live.setAttribute("aria-pressed", String(on));
      announce(on ? "Live updates on" : "Live updates paused");
      if (on) { listen(); later(); } else stopListening();
    });
    document.addEventListener("visibilitychange", () => {
      if (document.hidden) stopListening(); else { listen(); later(); }
    });
    listen();
  }

  // ---- Copy, select, submit -------------------------------------------------

  document.addEventListener("click", async (event) => {
    const button = event.target.closest("[data-copy]");
    if (!button) return;
    const from = document.getElementById(button.dataset.copy);
    try {
      await navigator.clipboard.writeText(from ? from.textContent : "");
      announce("Copied");
      const label = button.textContent;
      button.textContent = "Copied";
      setTimeout(() => { button.textContent = label; }, 1200);
    } catch { announce("The browser does not allow copying"); }
  });
  for (const button of $$("[data-copy]")) button.hidden = false;

  // The bar at the bottom shows how many tasks are selected.
  const boxes = () => $$("input[name=ids]");
  function showSelected() {
    const bar = $("[data-selected]");
    if (!bar) return;
    const number = boxes().filter((box) => box.checked).length;
    bar.hidden = number === 0;
    const label = $("[data-selected-count]", bar);
    if (label) label.textContent = String(number);
  }
  let lastBox = null;
  document.addEventListener("click", (event) => {
    const box = event.target.closest("input[name=ids]");
    if (!box) return;
    const all = boxes();
    if (event.shiftKey && lastBox) {
      const [from, to] = [all.indexOf(lastBox), all.indexOf(box)].sort((a, b) => a - b);
      for (const each of all.slice(Math.max(from, 0), to + 1)) each.checked = box.checked;
    }
    lastBox = box;
  });
  document.addEventListener("change", (event) => {
    if (event.target.matches("[data-select-all]")) {
      for (const box of boxes()) box.checked = event.target.checked;
    }
    if (event.target.matches("[data-submit]")) event.target.form.requestSubmit();
    showSelected();
  });
  // A double click submits a form once.
  document.addEventListener("submit", (event) => {
    const form = event.target;
    if (form.method !== "post") return;
    if (form.dataset.sent) { event.preventDefault(); return; }
    form.dataset.sent = "1";
    setTimeout(() => { delete form.dataset.sent; }, 2000);
  });
  const selectAll = $("[data-select-all]");
  if (selectAll) selectAll.hidden = false;
  showSelected();

  // ---- Keys ---------------------------------------------------------------

  const keys = [
    ["/", "Go to the filter"], ["j, k", "Next and previous row"], ["Enter, o", "Open the row"],
    ["x", "Select the row"], ["r", "Retry"], ["c", "Cancel"], ["p", "Pause or resume live updates"],
    ["g o, g t, g e", "Overview, tasks, errors"], ["g q, g s, g i", "Queues, schedules, instances"],
    ["g h, g a", "Health, audit"], ["?", "These keys"], ["Esc", "Close, or leave the field"],
  ];
  function showKeys() {
    let box = $("#key-list");
    if (!box) {
      box = document.createElement("dialog");
      box.id = "key-list";
      box.setAttribute("aria-label", "Keys");
      const title = document.createElement("h2");
      title.textContent = "Keys";
      const list = document.createElement("dl");
      list.className = "facts";
      for (const [key, what] of keys) {
        const term = document.createElement("dt");
        for (const one of key.split(", ")) {
          const mark = document.createElement("kbd");
          mark.textContent = one;
          term.append(mark, " ");
        }
        const description = document.createElement("dd");
        description.textContent = what;
        list.append(term, description);
      }
      const close = document.createElement("button");
      close.className = "plain";
      close.textContent = "Close";
      close.addEventListener("click", () => box.close());
      box.append(title, list, close);
      page.append(box);
    }
    box.showModal();
  }
  const keysButton = $("#keys");
  if (keysButton) { keysButton.hidden = false; keysButton.addEventListener("click", showKeys); }

  const rows = () => $$("tr[data-key]");
  function move(by) {
    const all = rows();
    if (!all.length) return;
    const at = all.findIndex((row) => row.classList.contains("at"));
    const next = all[Math.min(Math.max(at + by, 0), all.length - 1)];
    all.forEach((row) => row.classList.remove("at"));
    next.classList.add("at");
    next.scrollIntoView({ block: "nearest" });
    const link = $("a", next);
    if (link) link.focus({ preventScroll: true });
  }
  const current = () => $("tr.at") || document.activeElement?.closest?.("tr[data-key]");

  // Acts on the current row, or on the task of the page.
  const pageButton = (name) => $$(`[data-act=${name}]`).find((button) => !button.closest("tr[data-key]"));
  function act(name) {
    const row = current();
    const box = row && $("input[name=ids]", row);
    const bulk = $(`[data-selected] [data-bulk=${name}]`);
    if (box && bulk) { box.checked = true; showSelected(); bulk.click(); return; }
    const button = pageButton(name);
    if (button && name === "cancel") confirmAct(name, button); else button?.click();
  }

  // A key is easily pressed by accident.
  function confirmAct(name, button) {
    const box = document.createElement("dialog");
    box.id = "confirm";
    const title = document.createElement("h2");
    title.textContent = `${button.textContent.trim()} this task?`;
    const consequence = document.createElement("p");
    consequence.textContent = button.title;
    const go = document.createElement("button");
    go.className = "danger";
    go.textContent = `${button.textContent.trim()} it`;
    // The page may have been updated meanwhile.
    go.addEventListener("click", () => { box.close(); pageButton(name)?.click(); });
    const back = document.createElement("button");
    back.className = "plain";
    back.textContent = "Back";
    back.addEventListener("click", () => box.close());
    const row = document.createElement("div");
    row.className = "row";
    row.append(go, back);
    box.setAttribute("aria-label", title.textContent);
    box.append(title, consequence, row);
    box.addEventListener("close", () => box.remove());
    page.append(box);
    box.showModal();
    go.focus();
  }

  let prefix = false;
  // A node of a drawing that is partly visible would stay so.
  document.addEventListener("focusin", (event) => {
    const node = event.target.closest?.(".graph .node");
    if (node?.matches(":focus-visible")) node.scrollIntoView({ block: "nearest", inline: "nearest" });
  });

  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const field = event.target.closest("input:not([type=checkbox]), textarea, select");
    if (event.key === "Escape" && field) { field.blur(); return; }
    if (field || $("dialog[open]")) return;
    if (prefix) {
      prefix = false;
      const link = $(`[data-go="${CSS.escape(event.key)}"]`);
      if (link) { event.preventDefault(); link.click(); }
      return;
    }
    const handler = {
      "/": () => $("[data-filter]")?.focus(), "?": showKeys, "g": () => { prefix = true; },
      "j": () => move(1), "k": () => move(-1), "p": () => live?.click(),
      "o": () => current() && $("a", current())?.click(),
      "x": () => { const box = current() && $("input[name=ids]", current()); if (box) { box.checked = !box.checked; showSelected(); } },
      "r": () => act("retry"), "c": () => act("cancel"),
    }[event.key];
    if (handler) { event.preventDefault(); handler(); }
  });

  // ---- Suggestions for a filter -------------------------------------------
  // A listbox under the field: arrows choose, Enter or Tab takes, Esc closes.

  const filter = $("[data-suggestions]");
  if (filter) {
    const list = document.createElement("ul");
    list.id = "suggestions";
    list.className = "suggestions";
    list.hidden = true;
    list.setAttribute("role", "listbox");
    list.setAttribute("aria-label", "Suggestions");
    filter.after(list);
    for (const [name, value] of [["role", "combobox"], ["aria-expanded", "false"],
      ["aria-controls", list.id], ["aria-autocomplete", "list"]]) filter.setAttribute(name, value);
    let found = null;
    let chosen = -1;
    let request = 0;
    let timer = 0;

    function close() {
      list.hidden = true;
      found = null;
      chosen = -1;
      filter.setAttribute("aria-expanded", "false");
      filter.removeAttribute("aria-activedescendant");
    }
    function choose(to) {
      const all = [...list.children];
      chosen = (to + all.length) % all.length;
      all.forEach((item, at) => item.setAttribute("aria-selected", String(at === chosen)));
      filter.setAttribute("aria-activedescendant", all[chosen].id);
      all[chosen].scrollIntoView({ block: "nearest" });
    }
    function take(at) {
      const { from, to, suggestions } = found;
      const text = suggestions[at].text;
      filter.value = filter.value.slice(0, from) + text + filter.value.slice(to);
      filter.setSelectionRange(from + text.length, from + text.length);
      close();
      suggest();
    }
    function show(answer) {
      list.replaceChildren(...answer.suggestions.map((suggestion, at) => {
        const item = document.createElement("li");
        item.id = `suggestion-${at}`;
        item.setAttribute("role", "option");
        item.setAttribute("aria-selected", "false");
        item.textContent = suggestion.text;
        if (suggestion.about) {
          const about = document.createElement("small");
          about.textContent = suggestion.about;
          item.append(about);
        }
        item.addEventListener("pointerdown", (event) => { event.preventDefault(); take(at); });
        return item;
      }));
      found = answer;
      chosen = -1;
      filter.removeAttribute("aria-activedescendant");
      list.hidden = false;
      filter.setAttribute("aria-expanded", "true");
    }
    function suggest() {
      clearTimeout(timer);
      timer = setTimeout(async () => {
        const number = ++request;
        const url = new URL(filter.dataset.suggestions, location.href);
        url.searchParams.set("text", filter.value);
        url.searchParams.set("at", String(filter.selectionStart ?? filter.value.length));
        try {
          const answer = await fetch(url, { credentials: "same-origin" });
          if (!answer.ok || number !== request || document.activeElement !== filter) return;
          const fresh = await answer.json();
          if (fresh.suggestions.length) show(fresh); else close();
        } catch { close(); }
      }, 120);
    }
    filter.addEventListener("input", suggest);
    filter.addEventListener("focus", suggest);
    filter.addEventListener("blur", close);
    filter.addEventListener("keydown", (event) => {
      if (list.hidden) return;
      const handler = {
        "ArrowDown": () => choose(chosen + 1), "ArrowUp": () => choose(chosen < 0 ? -1 : chosen - 1),
        "Enter": () => take(chosen), "Tab": () => take(chosen), "Escape": close,
      }[event.key];
      if (!handler || (chosen < 0 && (event.key === "Enter" || event.key === "Tab"))) return;
      event.preventDefault();
      event.stopPropagation();
      handler();
    });
  }

  // ---- Schedules ----------------------------------------------------------
  // The next slots are shown while the rule is edited.

  const schedule = $("form[data-preview]");
  if (schedule) {
    const times = $("#preview");
    let pause = 0;
    let request = 0;
    const preview = async () => {
      const number = ++request;
      const url = new URL(schedule.dataset.preview, location.href);
      for (const name of ["rule", "time_zone"]) url.searchParams.set(name, schedule.elements[name].value);
      try {
        const answer = await fetch(url, { credentials: "same-origin" });
        if (!answer.ok || answer.redirected || number !== request) return;
        times.replaceChildren(...parse(await answer.text()).body.childNodes);
      } catch { /* The server does not answer: the button tries again. */ }
    };
    schedule.addEventListener("input", (event) => {
      if (!["rule", "time_zone"].includes(event.target.name)) return;
      clearTimeout(pause);
      pause = setTimeout(preview, 250);
    });
  }
})();
