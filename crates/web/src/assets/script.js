// Pages read without this. With it they stay up to date, and answer to keys.
"use strict";

(() => {
  const page = document.body;
  const $ = (selector, from = document) => from.querySelector(selector);
  const $$ = (selector, from = document) => [...from.querySelectorAll(selector)];
  const said = $("#said");
  const say = (text) => { if (said) said.textContent = text; };

  // The one place where text becomes a document. Nothing in it runs, and only
  // the server's own pages come here.
  const policy = window.trustedTypes
    ? window.trustedTypes.createPolicy("task-engine", { createHTML: (text) => text })
    : { createHTML: (text) => text };
  const parse = (text) => new DOMParser().parseFromString(policy.createHTML(text), "text/html");

  // ---- Staying up to date -------------------------------------------------
  // The server says that something has changed; the page is read again, and
  // what is marked data-live is made the same, node by node, so that focus,
  // selection and open details stay.

  const keyOf = (node) => node.nodeType === 1 ? (node.dataset.key || node.id || "") : "";
  const alike = (one, other) =>
    one.nodeType === other.nodeType && one.nodeName === other.nodeName && keyOf(one) === keyOf(other);

  function morph(old, fresh) {
    if (old.nodeType === 3) {
      if (old.data !== fresh.data) old.data = fresh.data;
      return;
    }
    if (old.nodeType !== 1) return;
    const kept = (name) =>
      (name === "open" && old.nodeName === "DETAILS") ||
      ((name === "value" || name === "checked") && /^(INPUT|TEXTAREA|SELECT|OPTION)$/.test(old.nodeName)) ||
      (name === "class" && old.classList.contains("at"));
    for (const { name } of [...old.attributes]) {
      if (!fresh.hasAttribute(name) && !kept(name)) old.removeAttribute(name);
    }
    for (const { name, value } of fresh.attributes) {
      if (!kept(name) && old.getAttribute(name) !== value) old.setAttribute(name, value);
    }
    if (/^(TEXTAREA|SELECT)$/.test(old.nodeName)) return;
    children(old, fresh);
  }

  function children(old, fresh) {
    const byKey = new Map();
    for (const child of old.children) {
      const key = keyOf(child);
      if (key) byKey.set(key, child);
    }
    let at = old.firstChild;
    for (const next of [...fresh.childNodes]) {
      const key = keyOf(next);
      const known = key ? byKey.get(key) : null;
      if (known) {
        if (known !== at) old.insertBefore(known, at); else at = at.nextSibling;
        morph(known, next);
      } else if (at && !keyOf(at) && alike(at, next)) {
        const same = at;
        at = at.nextSibling;
        morph(same, next);
      } else {
        const added = document.importNode(next, true);
        old.insertBefore(added, at);
        if (added.nodeType === 1 && added.nodeName === "TR") added.classList.add("fresh");
      }
    }
    while (at) {
      const gone = at;
      at = at.nextSibling;
      gone.remove();
    }
  }

  // New rows wait behind a button while somebody points at the table, works in
  // it, or has scrolled down: nothing moves under a pointer.
  function busyWith(region) {
    return region.matches(":hover") || region.contains(document.activeElement) ||
      window.scrollY > 150 || $("input[name=ids]:checked", region) !== null;
  }

  function apply(region, fresh, force) {
    const body = region.hasAttribute("data-hold") ? $("tbody", region) : null;
    const pill = body && $("[data-pill]");
    if (!body || force || !busyWith(region)) {
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
      const words = `${rows.size} new`;
      if (pill.textContent !== words) { pill.textContent = words; say(words); }
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
    } catch { /* The server is away: the next event comes when it is back. */ } finally {
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
  let seen = "";
  function listen() {
    if (events || document.hidden || !page.dataset.events || live.getAttribute("aria-pressed") === "false") return;
    events = new EventSource(page.dataset.events);
    // Also after the first one: what happened since the page was made is in neither.
    events.addEventListener("figures", (event) => {
      if (event.lastEventId !== seen) { seen = event.lastEventId; later(); }
    });
  }
  function deafen() {
    if (events) { events.close(); events = null; }
  }
  if (live && $("[data-live]")) {
    live.hidden = false;
    live.addEventListener("click", () => {
      const on = live.getAttribute("aria-pressed") !== "true";
      live.setAttribute("aria-pressed", String(on));
      say(on ? "Live" : "Held still");
      if (on) { listen(); later(); } else deafen();
    });
    document.addEventListener("visibilitychange", () => {
      if (document.hidden) deafen(); else { listen(); later(); }
    });
    listen();
  }

  // ---- Small comforts -----------------------------------------------------

  document.addEventListener("click", async (event) => {
    const button = event.target.closest("[data-copy]");
    if (!button) return;
    const from = document.getElementById(button.dataset.copy);
    try {
      await navigator.clipboard.writeText(from ? from.textContent : "");
      say("Copied");
      const words = button.textContent;
      button.textContent = "Copied";
      setTimeout(() => { button.textContent = words; }, 1200);
    } catch { say("The browser does not allow copying"); }
  });
  for (const button of $$("[data-copy]")) button.hidden = false;

  // Selecting tasks: the bar at the bottom says how many.
  const boxes = () => $$("input[name=ids]");
  function tellSelected() {
    const bar = $("[data-selected]");
    if (!bar) return;
    const number = boxes().filter((box) => box.checked).length;
    bar.hidden = number === 0;
    const words = $("[data-selected-count]", bar);
    if (words) words.textContent = String(number);
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
    tellSelected();
  });
  // A double click does a thing once.
  document.addEventListener("submit", (event) => {
    const form = event.target;
    if (form.method !== "post") return;
    if (form.dataset.sent) { event.preventDefault(); return; }
    form.dataset.sent = "1";
    setTimeout(() => { delete form.dataset.sent; }, 2000);
  });
  const everything = $("[data-select-all]");
  if (everything) everything.hidden = false;
  tellSelected();

  // ---- Keys ---------------------------------------------------------------

  const keys = [
    ["/", "Go to the filter"], ["j, k", "Next and previous row"], ["Enter, o", "Open the row"],
    ["x", "Select the row"], ["r", "Retry"], ["c", "Cancel"], ["p", "Hold the page still, or go on"],
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
        const words = document.createElement("dd");
        words.textContent = what;
        list.append(term, words);
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

  // What a key does to the row at hand, or to the page's own task.
  const pageButton = (name) => $$(`[data-act=${name}]`).find((button) => !button.closest("tr[data-key]"));
  function act(name) {
    const row = current();
    const box = row && $("input[name=ids]", row);
    const bulk = $(`[data-selected] [data-bulk=${name}]`);
    if (box && bulk) { box.checked = true; tellSelected(); bulk.click(); return; }
    const button = pageButton(name);
    if (button && name === "cancel") confirmAct(name, button); else button?.click();
  }

  // A key is pressed by accident more easily than a button.
  function confirmAct(name, button) {
    const box = document.createElement("dialog");
    box.id = "confirm";
    const title = document.createElement("h2");
    title.textContent = `${button.textContent.trim()} this task?`;
    const words = document.createElement("p");
    words.textContent = button.title;
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
    box.append(title, words, row);
    box.addEventListener("close", () => box.remove());
    page.append(box);
    box.showModal();
    go.focus();
  }

  let prefix = false;
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
    const does = {
      "/": () => $("[data-filter]")?.focus(), "?": showKeys, "g": () => { prefix = true; },
      "j": () => move(1), "k": () => move(-1), "p": () => live?.click(),
      "o": () => current() && $("a", current())?.click(),
      "x": () => { const box = current() && $("input[name=ids]", current()); if (box) { box.checked = !box.checked; tellSelected(); } },
      "r": () => act("retry"), "c": () => act("cancel"),
    }[event.key];
    if (does) { event.preventDefault(); does(); }
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
    let asked = 0;
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
      const { from, to, offers } = found;
      const text = offers[at].text;
      filter.value = filter.value.slice(0, from) + text + filter.value.slice(to);
      filter.setSelectionRange(from + text.length, from + text.length);
      close();
      ask();
    }
    function show(answer) {
      list.replaceChildren(...answer.offers.map((offer, at) => {
        const item = document.createElement("li");
        item.id = `suggestion-${at}`;
        item.setAttribute("role", "option");
        item.setAttribute("aria-selected", "false");
        item.textContent = offer.text;
        if (offer.about) {
          const about = document.createElement("small");
          about.textContent = offer.about;
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
    function ask() {
      clearTimeout(timer);
      timer = setTimeout(async () => {
        const number = ++asked;
        const url = new URL(filter.dataset.suggestions, location.href);
        url.searchParams.set("text", filter.value);
        url.searchParams.set("at", String(filter.selectionStart ?? filter.value.length));
        try {
          const answer = await fetch(url, { credentials: "same-origin" });
          if (!answer.ok || number !== asked || document.activeElement !== filter) return;
          const fresh = await answer.json();
          if (fresh.offers.length) show(fresh); else close();
        } catch { close(); }
      }, 120);
    }
    filter.addEventListener("input", ask);
    filter.addEventListener("focus", ask);
    filter.addEventListener("blur", close);
    filter.addEventListener("keydown", (event) => {
      if (list.hidden) return;
      const does = {
        "ArrowDown": () => choose(chosen + 1), "ArrowUp": () => choose(chosen < 0 ? -1 : chosen - 1),
        "Enter": () => take(chosen), "Tab": () => take(chosen), "Escape": close,
      }[event.key];
      if (!does || (chosen < 0 && (event.key === "Enter" || event.key === "Tab"))) return;
      event.preventDefault();
      event.stopPropagation();
      does();
    });
  }

  // ---- Schedules ----------------------------------------------------------
  // When it fires is shown while it is typed.

  const typed = $("form[data-preview]");
  if (typed) {
    const shown = $("#preview");
    let pause = 0;
    let asked = 0;
    const preview = async () => {
      const number = ++asked;
      const url = new URL(typed.dataset.preview, location.href);
      for (const name of ["rule", "zone"]) url.searchParams.set(name, typed.elements[name].value);
      try {
        const answer = await fetch(url, { credentials: "same-origin" });
        if (!answer.ok || answer.redirected || number !== asked) return;
        shown.replaceChildren(...parse(await answer.text()).body.childNodes);
      } catch { /* The server is away: the button asks again. */ }
    };
    typed.addEventListener("input", (event) => {
      if (!["rule", "zone"].includes(event.target.name)) return;
      clearTimeout(pause);
      pause = setTimeout(preview, 250);
    });
  }
})();
