// Adds to a timeline that is complete without it: drag to zoom, point at a part for its call, arrow keys from part to part.
"use strict";
(() => {
  const SHARPNESS = 2; // columns of a picture for each CSS pixel
  const REACH = 3; // CSS pixels beside a part at which pointing still means it
  const SHORTEST_NS = 200;
  const UNITS = [[1e9, "s"], [1e6, "ms"], [1e3, "µs"], [1, "ns"]];
  const MOST_TICKS = 6;

  const unitOf = (ns) => UNITS.find(([size]) => Math.abs(ns) >= size) || UNITS[3];
  const time = (ns) => {
    const [size, unit] = unitOf(ns);
    return `${Number((ns / size).toPrecision(3))} ${unit}`;
  };

  const inflated = (text) => {
    const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
    return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"))).json();
  };
  const decoded = ([idle, gaps, lengths, kind]) => {
    let now = 0;
    const begin = [], end = [];
    gaps.forEach((gap, index) => {
      begin.push(now += gap);
      end.push(now += lengths[index]);
    });
    return { idle, begin, end, kind };
  };

  // the last part that begins at or before `moment`; -1 for none
  const lastBegun = (track, moment) => {
    let low = 0, high = track.begin.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (track.begin[middle] <= moment) low = middle + 1;
      else high = middle;
    }
    return low - 1;
  };

  // as the server draws it: a column has the tone with the largest share of it, none where most of it is idle
  const draw = (track, tones, low, high, cells) => {
    const paths = {}, shared = new Map();
    const scale = cells / (high - low);
    let column = -1;
    const add = (first, last, tone) => { paths[tone] = `${paths[tone] || ""}M${first} .5H${last}`; };
    const flush = () => {
      let best = "", most = 0, sum = 0;
      for (const [tone, share] of shared) {
        sum += share;
        if (share > most) [best, most] = [tone, share];
      }
      if (most && most >= 1 - sum) add(column, column + 1, best);
      shared.clear();
    };
    for (let index = Math.max(0, lastBegun(track, low)); index < track.begin.length && track.begin[index] < high; index += 1) {
      const left = Math.max(0, (track.begin[index] - low) * scale), right = Math.min(cells, (track.end[index] - low) * scale);
      if (right <= left) continue;
      const tone = tones[track.kind[index]], first = Math.floor(left), last = Math.floor(right);
      if (first !== column) { flush(); column = first; }
      shared.set(tone, (shared.get(tone) || 0) + Math.min(right, first + 1) - left);
      if (last > first) {
        flush();
        if (last > first + 1) add(first + 1, last, tone);
        column = last;
        if (right > last) shared.set(tone, right - last);
      }
    }
    flush();
    return paths;
  };

  const timeline = async (figure) => {
    const data = await inflated(figure.querySelector("script").textContent);
    const box = figure.querySelector(".lanes"), output = figure.querySelector("output");
    const lanes = Array.from(figure.querySelectorAll(".lane"));
    const tracks = data.tracks.map(decoded);
    const tones = data.kinds.map((kind) => kind[1]);
    const make = (name, parent) => {
      const node = document.createElement(name === "part" ? "i" : "div");
      node.className = name;
      node.hidden = true;
      parent.append(node);
      return node;
    };
    const tip = make("tip", box), choice = make("choice", box);
    const marks = lanes.map((lane) => make("part", lane));
    let low = 0, high = data.length, chosen = null, drag = null;

    const area = () => lanes[0].getBoundingClientRect();
    const moment = (x) => low + ((x - area().left) / area().width) * (high - low);
    const left = (ns) => Math.min(1, Math.max(0, (ns - low) / (high - low)));

    const axis = () => {
      const span = high - low, step10 = 10 ** Math.floor(Math.log10(span / MOST_TICKS));
      const step = step10 * [1, 2, 2.5, 5, 10].find((factor) => span / (step10 * factor) <= MOST_TICKS);
      const [size, unit] = unitOf(high);
      const ticks = [];
      for (let number = Math.ceil(low / step); number * step <= high; number += 1) ticks.push(number * step);
      const text = (ns, index) => `${Number((ns / size).toPrecision(9))}${index ? "" : ` ${unit}`}`;
      const make = (name, ns) => {
        const node = document.createElement(name);
        node.style.left = `${100 * left(ns)}%`;
        node.className = left(ns) > 0.98 ? "at-end" : left(ns) < 0.01 ? "at-start" : "";
        return node;
      };
      figure.querySelector(".grid").replaceChildren(...ticks.map((ns) => make("i", ns)));
      figure.querySelector(".times div").replaceChildren(
        ...ticks.map((ns, index) => Object.assign(make("span", ns), { textContent: text(ns, index) })),
      );
    };
    const redraw = () => {
      const cells = Math.max(200, Math.round(area().width * SHARPNESS));
      lanes.forEach((lane, number) => {
        const svg = lane.querySelector("svg");
        svg.setAttribute("viewBox", `0 0 ${cells} 1`);
        const paths = draw(tracks[number], tones, low, high, cells);
        svg.replaceChildren(...Object.entries(paths).map(([tone, d]) => {
          const path = document.createElementNS("http://www.w3.org/2000/svg", "path");
          path.setAttribute("class", tone);
          path.setAttribute("d", d);
          return path;
        }));
      });
      axis();
      if (chosen) choose(chosen.number, chosen.part, false);
    };
    const zoom = (first, last) => {
      const span = Math.min(data.length, Math.max(SHORTEST_NS, last - first));
      low = Math.min(Math.max(0, first), data.length - span);
      high = low + span;
      redraw();
    };

    // part: the number of a part of a track, or the idle time after part `after`
    const span = (track, part) =>
      part.after === undefined
        ? [track.begin[part.index], track.end[part.index], data.kinds[track.kind[part.index]][2]]
        : [track.end[part.after] || 0, track.begin[part.after + 1] ?? data.length, track.idle];
    const choose = (number, part, aloud) => {
      const [begin, end, text] = span(tracks[number], part);
      chosen = { number, part };
      marks.forEach((mark, index) => { mark.hidden = index !== number; });
      marks[number].style.left = `${100 * left(begin)}%`;
      marks[number].style.width = `${100 * (left(end) - left(begin))}%`;
      tip.textContent = `${text} · ${time(end - begin)}`;
      tip.hidden = false;
      const frame = box.getBoundingClientRect(), lane = lanes[number].getBoundingClientRect();
      const middle = lane.left - frame.left + (lane.width * (left(begin) + left(end))) / 2;
      tip.style.left = `${Math.max(0, Math.min(frame.width - tip.offsetWidth, middle - tip.offsetWidth / 2))}px`;
      tip.style.top = `${lane.top - frame.top - tip.offsetHeight - 5}px`;
      if (aloud) output.textContent = `${tip.textContent}, from ${time(begin)}`;
    };
    const leave = () => {
      chosen = null;
      tip.hidden = true;
      marks.forEach((mark) => { mark.hidden = true; });
    };
    const pointAt = (number, x) => {
      const track = tracks[number], at = moment(x), reach = (REACH / area().width) * (high - low);
      const index = lastBegun(track, at);
      if (index >= 0 && at < track.end[index]) return choose(number, { index }, false);
      const near = [index, index + 1].filter((one) => one >= 0 && one < track.begin.length)
        .map((one) => [Math.min(Math.abs(at - track.begin[one]), Math.abs(at - track.end[one])), one]).sort((a, b) => a[0] - b[0])[0];
      return choose(number, near && near[0] <= reach ? { index: near[1] } : { after: index }, false);
    };
    const step = (by) => {
      const number = chosen ? chosen.number : 0, track = tracks[number];
      const from = !chosen ? lastBegun(track, low) : chosen.part.index ?? chosen.part.after + (by < 0 ? 1 : 0);
      const index = Math.min(track.begin.length - 1, Math.max(0, chosen ? from + by : from));
      if (!track.begin.length) return;
      const begin = track.begin[index], end = track.end[index], width = high - low;
      if (end <= low || begin >= high) zoom(begin - width / 2, begin + width / 2);
      choose(number, { index }, true);
    };
    const change = (by) => {
      const number = chosen ? Math.min(lanes.length - 1, Math.max(0, chosen.number + by)) : 0;
      const at = chosen ? Math.max(low, span(tracks[chosen.number], chosen.part)[0]) : low;
      const index = lastBegun(tracks[number], at);
      choose(number, index >= 0 ? { index } : { after: -1 }, true);
    };
    const keys = {
      ArrowLeft: () => step(-1),
      ArrowRight: () => step(1),
      ArrowUp: () => change(-1),
      ArrowDown: () => change(1),
      Escape: () => { leave(); zoom(0, data.length); },
    };
    const scaled = (factor) => {
      const middle = chosen ? span(tracks[chosen.number], chosen.part).slice(0, 2).reduce((a, b) => a + b) / 2 : (low + high) / 2;
      const width = (high - low) * factor, share = (middle - low) / (high - low);
      zoom(middle - width * share, middle - width * share + width);
    };
    keys["+"] = keys["="] = () => scaled(0.5);
    keys["-"] = () => scaled(2);

    box.addEventListener("keydown", (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey || !keys[event.key]) return;
      keys[event.key]();
      event.preventDefault();
    });
    box.addEventListener("focus", () => { if (box.matches(":focus-visible")) step(0); });
    box.addEventListener("blur", leave);
    box.addEventListener("pointermove", (event) => {
      if (drag) {
        const { left: from, right: to } = area(), x = Math.min(to, Math.max(from, event.clientX));
        const origin = box.getBoundingClientRect().left;
        choice.hidden = Math.abs(x - drag.x) < REACH;
        choice.style.left = `${Math.min(x, drag.x) - origin}px`;
        choice.style.width = `${Math.abs(x - drag.x)}px`;
        drag.to = x;
        leave();
        return;
      }
      const number = lanes.indexOf(event.target.closest(".lane"));
      if (number >= 0) pointAt(number, event.clientX);
      else if (document.activeElement !== box) leave();
    });
    box.addEventListener("pointerleave", () => { if (document.activeElement !== box) leave(); });
    box.addEventListener("pointerdown", (event) => {
      const { left: from, right: to } = area();
      if (event.button !== 0 || event.clientX < from || event.clientX > to) return;
      drag = { x: event.clientX, to: event.clientX };
      box.setPointerCapture(event.pointerId);
    });
    const end = (event) => {
      if (!drag) return;
      const [first, last] = [Math.min(drag.x, drag.to), Math.max(drag.x, drag.to)];
      drag = null;
      choice.hidden = true;
      if (event.type === "pointerup" && last - first >= REACH) zoom(moment(first), moment(last));
    };
    box.addEventListener("pointerup", end);
    box.addEventListener("pointercancel", end);
    box.addEventListener("dblclick", () => zoom(0, data.length));
    addEventListener("resize", redraw);
    figure.querySelector(".hint").hidden = false;
    redraw();
  };
  if (window.DecompressionStream) document.querySelectorAll("[data-timeline]").forEach(timeline);
})();
