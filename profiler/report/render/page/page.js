// Adds to a page that is complete without it: theme, links into closed groups, sorting, timelines, flame graphs.
"use strict";
(() => {
  const root = document.documentElement;
  const all = (selector, within = document) => Array.from(within.querySelectorAll(selector));
  root.classList.add("js");

  // theme
  const theme = document.getElementById("theme");
  const system = matchMedia("(prefers-color-scheme: dark)");
  const isDark = () => (root.dataset.theme ? root.dataset.theme === "dark" : system.matches);
  const nameTheme = () => {
    theme.textContent = isDark() ? "Light theme" : "Dark theme";
    theme.setAttribute("aria-label", `Change to the ${isDark() ? "light" : "dark"} theme`);
  };
  theme.hidden = false;
  theme.addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    nameTheme();
  });
  system.addEventListener("change", nameTheme);
  nameTheme();

  // a link to a section opens the group that holds it
  const reveal = () => {
    const target = location.hash && document.getElementById(location.hash.slice(1));
    for (let box = target && target.closest("details"); box; box = box.parentElement.closest("details")) box.open = true;
    if (target) target.scrollIntoView();
  };
  addEventListener("hashchange", reveal);
  reveal();

  // sorting: numbers the largest first, text from A; what was not measured stays last
  const compare = (a, b, sign) => {
    if (a.none || b.none) return a.none - b.none;
    if (a.number !== null && b.number !== null) return sign * (a.number - b.number);
    return sign * a.text.localeCompare(b.text, "en", { numeric: true });
  };
  const key = (cell) => ({
    none: cell.hasAttribute("data-none") ? 1 : 0,
    number: cell.dataset.sort === undefined ? null : Number(cell.dataset.sort),
    text: cell.textContent.trim(),
  });
  const sort = (table, heads, index) => {
    const head = heads[index];
    const first = head.classList.contains("num") ? "descending" : "ascending";
    const other = first === "descending" ? "ascending" : "descending";
    const order = head.getAttribute("aria-sort") === first ? other : first;
    heads.forEach((one) => one.removeAttribute("aria-sort"));
    head.setAttribute("aria-sort", order);
    const rows = Array.from(table.tBodies[0].rows).map((row) => [key(row.cells[index] || row.cells[row.cells.length - 1]), row]);
    rows.sort((a, b) => compare(a[0], b[0], order === "ascending" ? 1 : -1));
    table.tBodies[0].append(...rows.map((row) => row[1]));
  };
  // rows that are laid out as cards stay rows to screen readers
  for (const table of all("table.stacks")) {
    const roles = { thead: "rowgroup", tbody: "rowgroup", tr: "row", "thead th": "columnheader", "tbody th": "rowheader", td: "cell" };
    table.setAttribute("role", "table");
    for (const name of Object.keys(roles)) all(name, table).forEach((node) => node.setAttribute("role", roles[name]));
  }
  for (const table of all("table")) {
    if (table.tBodies[0].rows.length < 2) continue;
    const heads = all("thead th", table);
    heads.forEach((head, index) => {
      const button = document.createElement("button");
      button.type = "button";
      button.title = "Sort";
      button.append(...head.childNodes);
      button.addEventListener("click", () => sort(table, heads, index));
      head.append(button);
    });
  }

  // flame graphs
  const flame = (figure) => {
    const graph = figure.querySelector(".graph");
    const frames = all(".fr", graph).map((node) => {
      const style = node.style;
      const [l, w, d] = ["--l", "--w", "--d"].map((name) => Number(style.getPropertyValue(name)));
      const text = node.title;
      const chain = "chain" in node.dataset ? text.split("\n").slice(2) : [];
      return { node, l, w, d, text, chain, name: node.textContent, low: text.toLowerCase() };
    });
    if (!frames.length) return;
    const byNode = new Map(frames.map((frame) => [frame.node, frame]));
    const [input, reset, output] = ["input", "[data-reset]", "output"].map((one) => figure.querySelector(one));
    const slack = 1e-6;
    const rows = Number(graph.style.getPropertyValue("--rows"));
    let zoomed = frames[0];
    let said = "";
    figure.querySelector(".tools").hidden = false;

    const say = (frame) => { output.textContent = frame ? frame.text.split("\n").join(" · ") : said; };
    const NARROW = 34; // CSS pixels below which a name cannot be read
    const label = () => {
      const width = graph.clientWidth;
      for (const one of frames) one.node.classList.toggle("tiny", (Math.min(one.w, zoomed.w) / zoomed.w) * width < NARROW);
    };
    // a box that stands for a chain of calls has a row for each of them while it is zoomed
    let opened = [];
    const open = (frame) => {
      opened.forEach((node) => node.remove());
      const more = Math.max(0, frame.chain.length - 1);
      opened = frame.chain.slice(1).map((line, index) => {
        const node = frame.node.cloneNode();
        node.textContent = node.title = line;
        node.classList.remove("tiny");
        node.removeAttribute("role");
        node.removeAttribute("tabindex");
        node.setAttribute("aria-hidden", "true");
        node.style.setProperty("--d", frame.d + 1 + index);
        return node;
      });
      frame.node.after(...opened);
      for (const one of frames) {
        one.node.style.setProperty("--d", one.d + (one.d > frame.d ? more : 0));
        one.node.textContent = one === frame && more ? one.chain[0] : one.name;
      }
      graph.style.setProperty("--rows", rows + more);
    };
    const within = (a, b) => a.l >= b.l - slack && a.l + a.w <= b.l + b.w + slack;
    const zoom = (frame) => {
      zoomed = frame;
      graph.style.setProperty("--z", frame.l);
      graph.style.setProperty("--zw", frame.w);
      for (const one of frames) {
        one.node.hidden = one.l + one.w <= frame.l + slack || one.l >= frame.l + frame.w - slack;
      }
      reset.disabled = frame === frames[0];
      open(frame);
      label();
    };
    const focus = (frame) => {
      if (!frame) return;
      frames.forEach((one) => { one.node.tabIndex = one === frame ? 0 : -1; });
      frame.node.focus();
    };
    const search = () => {
      const wanted = input.value.trim().toLowerCase();
      figure.classList.toggle("searching", wanted !== "");
      let end = 0, covered = 0, count = 0;
      const hits = frames.filter((frame) => {
        const hit = wanted !== "" && frame.low.includes(wanted);
        frame.node.classList.toggle("hit", hit);
        return hit;
      });
      for (const hit of hits.sort((a, b) => a.l - b.l || b.w - a.w)) {
        count += 1;
        covered += Math.max(0, hit.l + hit.w - Math.max(end, hit.l));
        end = Math.max(end, hit.l + hit.w);
      }
      said = wanted === "" ? "" : `${count} ${count === 1 ? "frame matches" : "frames match"}, ${(100 * covered).toFixed(1)}% of the width`;
      say(null);
    };
    const near = (frame, name) => {
      const shown = frames.filter((one) => !one.node.hidden);
      if (name === "ArrowUp") return shown.find((one) => one.d === frame.d - 1 && within(frame, one));
      if (name === "ArrowDown") return shown.find((one) => one.d === frame.d + 1 && within(one, frame));
      const row = shown.filter((one) => one.d === frame.d).sort((a, b) => a.l - b.l);
      return row[row.indexOf(frame) + (name === "ArrowRight" ? 1 : -1)];
    };

    frames.forEach(({ node }, index) => {
      node.tabIndex = index === 0 ? 0 : -1;
      node.setAttribute("role", "button");
      node.setAttribute("aria-label", node.title.split("\n").join(", "));
    });
    graph.addEventListener("click", (event) => {
      const frame = byNode.get(event.target.closest(".fr"));
      if (frame) { zoom(frame); focus(frame); say(frame); }
    });
    graph.addEventListener("mouseover", (event) => say(byNode.get(event.target.closest(".fr"))));
    graph.addEventListener("mouseleave", () => say(null));
    graph.addEventListener("focusin", (event) => say(byNode.get(event.target.closest(".fr"))));
    figure.addEventListener("keydown", (event) => {
      if (event.key === "Escape") { input.value = ""; search(); zoom(frames[0]); return; }
      const frame = byNode.get(event.target);
      if (!frame) return;
      if (event.key === "Enter" || event.key === " ") zoom(frame);
      else if (event.key.startsWith("Arrow")) focus(near(frame, event.key));
      else return;
      event.preventDefault();
    });
    reset.addEventListener("click", () => zoom(frames[0]));
    input.addEventListener("input", search);
    new ResizeObserver(label).observe(graph); // also when its group is opened
  };
  all("[data-flame]").forEach(flame);
})();
