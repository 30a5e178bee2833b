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
  const SLACK = 1e-6;
  const NARROW = 34; // CSS pixels below which a name cannot be read
  const FOLDED = 0.99; // as html.py: a function that spends all its time in one other shares its box
  const within = (a, b) => a.l >= b.l - SLACK && a.l + a.w <= b.l + b.w + SLACK;
  const box = (node) => {
    const [l, w, d, o] = ["--l", "--w", "--d", "--o"].map((name) => Number(node.style.getPropertyValue(name)));
    const text = node.title;
    const lines = text.split("\n").slice(2);
    const chain = "chain" in node.dataset ? lines : [];
    const tint = node.classList[1];
    const calls = (chain.length ? chain : [`${node.textContent}  ${lines[0] || ""}`]).map((line) => {
      const [name, where = ""] = line.split("  ");
      return { line: line.trim(), name, key: `${name} ${where.replace(/:\d+$/, "")}`, tint };
    });
    return { node, l, w, d, o, at: l, text, chain, calls, name: node.textContent, low: text.toLowerCase(), kids: [] };
  };
  // of all stacks with a function, the calls above its outermost call, and those below it: merged, the most time first
  const callersAndCallees = (root, call) => {
    const trees = [{ kids: new Map() }, { kids: new Map() }];
    let total = 0;
    const add = (tree, calls, w) => {
      for (const each of calls) {
        if (!tree.kids.has(each.key)) tree.kids.set(each.key, { call: each, w: 0, kids: new Map() });
        tree = tree.kids.get(each.key);
        tree.w += w;
      }
    };
    const walk = (frame, above) => {
      const stack = [...above, ...frame.calls];
      const own = frame.w - frame.kids.reduce((sum, kid) => sum + kid.w, 0);
      const index = stack.findIndex((each) => each.key === call.key);
      if (index >= 0 && own > SLACK) {
        total += own;
        add(trees[0], stack.slice(1, index).reverse(), own);
        add(trees[1], stack.slice(index + 1), own);
      }
      frame.kids.forEach((kid) => walk(kid, stack));
    };
    walk(root, []);
    const boxes = [{ calls: [call], l: 0, w: total, d: 0 }];
    const place = (tree, left, d, step) => {
      for (const kid of [...tree.kids.values()].sort((a, b) => b.w - a.w)) {
        const calls = [kid.call];
        let last = kid;
        while (last.kids.size === 1 && [...last.kids.values()][0].w >= FOLDED * kid.w) {
          [last] = last.kids.values();
          calls[step < 0 ? "unshift" : "push"](last.call);
        }
        boxes.push({ calls, l: left, w: kid.w, d });
        place(last, left, d + step, step);
        left += kid.w;
      }
    };
    place(trees[0], 0, -1, -1);
    place(trees[1], 0, 1, 1);
    const top = Math.min(...boxes.map((each) => each.d));
    return boxes.map(({ calls, l, w, d }) => {
      const node = document.createElement("div");
      const [first, last, more] = [calls[0].name, calls[calls.length - 1].name, calls.length - 2];
      node.className = `fr ${calls[0].tint}`;
      node.textContent = more < 0 ? first : `${first} → ${more ? `${more} more → ` : ""}${last}`;
      if (calls.length > 1) node.dataset.chain = "";
      const lines = calls.length > 1 ? calls.map((each) => each.line) : [calls[0].line.slice(first.length + 2)];
      node.title = [node.textContent, `${(100 * w / root.w).toFixed(1)}% of the time`, ...lines].join("\n");
      Object.entries({ l: l / total, w: w / total, d: d - top }).forEach(([name, value]) => node.style.setProperty(`--${name}`, value));
      return box(node);
    });
  };
  const flame = (figure) => {
    const graph = figure.querySelector(".graph");
    const whole = all(".fr", graph).map(box);
    if (!whole.length) return;
    const [input, order, about, reset, output] = ["input", "select", "[data-function]", "[data-reset]", "output"].map((one) => figure.querySelector(one));
    let frames = whole, byNode = new Map(), zoomed = whole[0], choice = null, said = "", opened = [];
    whole.forEach((frame) => {
      const above = whole.find((one) => one.d === frame.d - 1 && within(frame, one));
      if (above) above.kids.push(frame);
    });
    figure.querySelector(".tools").hidden = false;

    const say = (frame) => { output.textContent = frame ? frame.text.split("\n").join(" · ") : said; };
    const label = () => {
      const width = graph.clientWidth;
      for (const one of frames) one.node.classList.toggle("tiny", (Math.min(one.w, zoomed.w) / zoomed.w) * width < NARROW);
    };
    const choose = (call) => {
      choice = call;
      about.disabled = !call;
    };
    // a box that stands for a chain of calls has a row for each of them while it is zoomed
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
      graph.style.setProperty("--rows", Math.max(...frames.map((one) => one.d)) + 1 + more);
    };
    const zoom = (frame) => {
      zoomed = frame;
      graph.style.setProperty("--z", frame.l);
      graph.style.setProperty("--zw", frame.w);
      for (const one of frames) {
        one.node.hidden = one.l + one.w <= frame.l + SLACK || one.l >= frame.l + frame.w - SLACK;
      }
      reset.disabled = frame === whole[0];
      choose(frames === whole && frame !== whole[0] ? frame.calls[frame.calls.length - 1] : null);
      open(frame);
      label();
    };
    const show = (boxes) => {
      frames = boxes;
      byNode = new Map(frames.map((frame) => [frame.node, frame]));
      frames.forEach(({ node }, index) => {
        node.tabIndex = index === 0 ? 0 : -1;
        node.setAttribute("role", "button");
        node.setAttribute("aria-label", node.title.split("\n").join(", "));
      });
      graph.replaceChildren(...frames.map((frame) => frame.node));
      if (order) order.disabled = frames !== whole;
      zoom(frames[0]);
      search();
    };
    const sandwich = (call) => {
      show(callersAndCallees(whole[0], call));
      said = `Callers above and callees below ${call.line}`;
      say(null);
    };
    const choosing = (frame) => (frames === whole ? zoom(frame) : sandwich(frame.calls[frame.calls.length - 1]));
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
      const step = { ArrowUp: -1, ArrowDown: 1 }[name];
      if (step) return shown.find((one) => one.d === frame.d + step && (within(frame, one) || within(one, frame)));
      const row = shown.filter((one) => one.d === frame.d).sort((a, b) => a.l - b.l);
      return row[row.indexOf(frame) + (name === "ArrowRight" ? 1 : -1)];
    };
    const arrange = (frame, left) => {
      frame.l = left;
      frame.node.style.setProperty("--l", left);
      const kids = [...frame.kids].sort((a, b) => (order.selectedIndex ? a.o - b.o : a.at - b.at));
      kids.reduce((at, kid) => (arrange(kid, at), at + kid.w), left);
    };

    graph.addEventListener("click", (event) => {
      const node = event.target.closest(".fr");
      const frame = byNode.get(node);
      if (frame) { choosing(frame); focus(byNode.get(node) || frames[0]); say(byNode.get(node) || null); }
      else if (opened.includes(node) && frames === whole) { choose(zoomed.calls[opened.indexOf(node) + 1]); output.textContent = node.title; }
    });
    graph.addEventListener("mouseover", (event) => say(byNode.get(event.target.closest(".fr"))));
    graph.addEventListener("mouseleave", () => say(null));
    graph.addEventListener("focusin", (event) => say(byNode.get(event.target.closest(".fr"))));
    figure.addEventListener("keydown", (event) => {
      if (event.key === "Escape") { input.value = ""; show(whole); return; }
      const frame = byNode.get(event.target);
      if (!frame) return;
      if (event.key === "Enter" || event.key === " ") { choosing(frame); focus(byNode.has(frame.node) ? frame : frames[0]); }
      else if (event.key.startsWith("Arrow")) focus(near(frame, event.key));
      else return;
      event.preventDefault();
    });
    reset.addEventListener("click", () => show(whole));
    about.addEventListener("click", () => { sandwich(choice); focus(frames[0]); });
    if (order) order.addEventListener("change", () => { arrange(whole[0], 0); zoom(zoomed); });
    input.addEventListener("input", search);
    new ResizeObserver(label).observe(graph); // also when its group is opened
    show(whole);
  };
  all("[data-flame]").forEach(flame);
})();
