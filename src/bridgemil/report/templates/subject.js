"use strict";
// The timeline of windows and the EEG below it. Everything is drawn as SVG: it follows the theme and prints sharp.
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const { places, recordings, rankings } = data;
  const SPANS = [2, 5, 10, 20, 30, 60];
  const LABELS = { gate: "attention weight" };
  const first = places[0];
  const last = Math.max(...places) + data.window;
  const byId = (id) => document.getElementById(id);
  const bytes = (text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
  const draw = (name, attributes, text) => {
    const node = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const key in attributes) node.setAttribute(key, attributes[key]);
    if (text !== undefined) node.textContent = text;
    return node;
  };
  const clock = (seconds) => {
    const s = Math.max(0, seconds);
    const rest = (s % 60).toFixed(s % 1 > 0.05 && s % 1 < 0.95 ? 1 : 0);
    return `${Math.floor(s / 60)}:${rest.padStart(rest.includes(".") ? 4 : 2, "0")}`;
  };
  const recordingAt = (place) => recordings.find((r) => place < r.end - 1e-6) ?? recordings[recordings.length - 1];
  const when = (place) => {
    const recording = recordingAt(place);
    const name = recordings.length > 1 ? ` of ${recording.name}` : "";
    return `${clock(place - recording.offset)}${name}`;
  };

  // ---- the EEG's bytes ----
  const eeg = data.eeg;
  const samples = new Int8Array(bytes(eeg.samples).buffer);
  const scales = new Float32Array(bytes(eeg.scales).buffer);
  let sampleOffset = 0, scaleOffset = 0;
  for (const stretch of eeg.stretches) {
    stretch.blocks = Math.ceil(stretch.n / eeg.block);
    stretch.end = stretch.start + stretch.n / eeg.rate;
    Object.assign(stretch, { sampleOffset, scaleOffset });
    sampleOffset += eeg.channels.length * stretch.n;
    scaleOffset += eeg.channels.length * stretch.blocks;
  }
  const microvolt = (stretch, channel, i) =>
    samples[stretch.sampleOffset + channel * stretch.n + i] *
    scales[stretch.scaleOffset + channel * stretch.blocks + Math.floor(i / eeg.block)];

  // A montage is a list of traces: the name, and the channels added and subtracted.
  const montages = {
    referential: eeg.channels.map((name, i) => ({ name, plus: i })),
    bipolar: eeg.bipolar.map(([name, plus, minus]) => ({ name, plus, minus })),
  };
  const value = (stretch, trace, i) =>
    microvolt(stretch, trace.plus, i) - (trace.minus === undefined ? 0 : microvolt(stretch, trace.minus, i));

  // The gain is the amplitude between two traces, in microvolts: 1, 2, 5, 10, … of any power of ten.
  const round125 = (x) => {
    const power = 10 ** Math.floor(Math.log10(x));
    return Number(([1, 2, 5, 10].find((step) => step * power >= x * 0.999) * power).toPrecision(1));
  };
  const amplitude = (uv) => {
    const [unit, size] = uv >= 1000 ? ["mV", 1e-3] : uv >= 0.1 ? ["µV", 1] : uv >= 1e-4 ? ["nV", 1e3] : ["pV", 1e6];
    return `${Number((uv * size).toPrecision(2))} ${unit}`;
  };
  const automatic = () => {  // 5th to 95th percentile of the median trace: one to two rows
    const spreads = [];
    for (const trace of montages[state.montage]) {
      if (state.hidden.has(trace.name)) continue;
      const found = [];
      for (const s of eeg.stretches) {
        const step = Math.max(1, Math.floor((s.n * eeg.stretches.length) / 1000));
        for (let i = 0; i < s.n; i += step) found.push(value(s, trace, i));
      }
      found.sort((a, b) => a - b);
      spreads.push(found[Math.floor(0.95 * (found.length - 1))] - found[Math.floor(0.05 * (found.length - 1))]);
    }
    spreads.sort((a, b) => a - b);
    const middle = spreads[Math.floor(spreads.length / 2)];
    return middle > 0 ? round125(0.5 * middle) : 1;
  };

  const state = { ranking: 0, chosen: null, start: first, span: Math.min(10, last - first), montage: "referential", hidden: new Set() };
  state.gain = automatic();

  // ---- the timeline ----
  const timeline = byId("timeline");
  const drawTimeline = () => {
    if (!timeline) return;
    const width = Math.max(300, timeline.clientWidth), height = 190, left = 52, right = 8, top = 12, bottom = 26;
    const ranking = rankings[state.ranking];
    let low = Math.min(...ranking.values), high = Math.max(...ranking.values);
    if (ranking.signed) { high = Math.max(high, 0); low = Math.min(low, 0); }
    const margin = (high - low || Math.abs(high) || 1) * 0.06;
    low -= margin; high += margin;
    const x = (place) => left + ((place - first) / (last - first)) * (width - left - right);
    const y = (value) => top + ((high - value) / (high - low)) * (height - top - bottom);
    timeline.setAttribute("viewBox", `0 0 ${width} ${height}`);
    timeline.replaceChildren();
    const band = (i, name) =>
      timeline.append(draw("rect", { class: name, x: x(places[i]), y: top, width: Math.max(1.5, x(places[i] + data.window) - x(places[i])), height: height - top - bottom }));
    for (const i of [...ranking.top, ...ranking.against]) band(i, "top");
    if (state.chosen !== null) band(state.chosen, "chosen");
    const floor = y(ranking.signed ? 0 : low);
    let line = "", area = "";
    places.forEach((place, i) => {
      const a = x(place).toFixed(1), b = x(place + data.window).toFixed(1), v = y(ranking.values[i]).toFixed(1);
      const joined = i > 0 && Math.abs(place - places[i - 1]) <= data.window * 1.01;
      line += `${joined ? "L" : "M"}${a} ${v}L${b} ${v}`;
      area += `M${a} ${floor.toFixed(1)}V${v}H${b}V${floor.toFixed(1)}Z`;
    });
    timeline.append(draw("path", { class: "area", d: area }), draw("path", { class: "value", d: line }));
    if (ranking.signed) timeline.append(draw("line", { class: "zero", x1: left, x2: width - right, y1: floor, y2: floor }));
    for (const value of [low + margin, ranking.signed ? 0 : (low + high) / 2, high - margin]) {
      timeline.append(draw("text", { x: left - 6, y: y(value) + 4, "text-anchor": "end" }, Number(value.toPrecision(2)).toString()));
    }
    const step = [5, 10, 30, 60, 120, 300, 600, 1200, 3600].find((s) => (last - first) / s <= width / 90) ?? 7200;
    for (const recording of recordings) {
      const from = Math.max(first, recording.offset);
      if (from > first) timeline.append(draw("line", { class: "recording", x1: x(from), x2: x(from), y1: top, y2: height - bottom }));
      for (let t = Math.ceil((from - recording.offset) / step) * step; recording.offset + t < recording.end; t += step) {
        const near = recordings.some((r) => r !== recording && Math.abs(x(r.offset) - x(recording.offset + t)) < 24 && r.offset > recording.offset);
        if (!near) timeline.append(draw("text", { x: x(recording.offset + t), y: height - 8, "text-anchor": "middle" }, clock(t)));
      }
    }
    const seen = x(Math.min(last, state.start + state.span)) - x(state.start);
    timeline.append(draw("rect", { class: "view", x: x(state.start), y: 4, width: Math.max(2, seen), height: height - bottom - 4 }));
    for (const title of document.querySelectorAll(".timeline-title")) title.hidden = title.dataset.ranking !== ranking.name;
    timeline.setAttribute("aria-labelledby", `title-${ranking.name}`);
    timeline.setAttribute("aria-valuemax", String(places.length - 1));
    timeline.place = (pixel) => {
      const rect = timeline.getBoundingClientRect();
      const at = first + (((pixel - rect.left) * (width / rect.width) - left) / (width - left - right)) * (last - first);
      let best = 0;
      places.forEach((place, i) => { if (Math.abs(place + data.window / 2 - at) < Math.abs(places[best] + data.window / 2 - at)) best = i; });
      return best;
    };
  };
  const say = (i, prefix) => {
    const values = rankings.map((ranking) => `${LABELS[ranking.name] ?? ranking.name} ${Number(ranking.values[i].toPrecision(3))}`).join(", ");
    byId("timeline-now").textContent = `${prefix} window ${i + 1} of ${places.length}, ${when(places[i])}: ${values}`;
  };
  const choose = (i, scroll) => {
    state.chosen = i;
    state.start = Math.min(Math.max(first, places[i] + data.window / 2 - state.span / 2), Math.max(first, last - state.span));
    if (timeline) {
      timeline.setAttribute("aria-valuenow", String(i));
      timeline.setAttribute("aria-valuetext", `window ${i + 1}, ${when(places[i])}`);
      say(i, "Chosen:");
    }
    for (const button of document.querySelectorAll("#tops button")) {
      button.setAttribute("aria-pressed", String(Number(button.dataset.window) === i));
    }
    drawTimeline();
    drawTraces();
    if (scroll) byId("traces").scrollIntoView({ block: "nearest" });
  };
  const listTops = () => {
    const ranking = rankings[state.ranking];
    const list = byId("tops");
    list.replaceChildren();
    for (const [windows, sign] of [[ranking.top, ranking.signed ? "+" : ""], [ranking.against, "−"]]) {
      for (const i of windows) {
        const button = document.createElement("button");
        button.type = "button";
        button.dataset.window = String(i);
        button.textContent = `${sign} ${when(places[i])}`.trim();
        button.setAttribute("aria-pressed", String(state.chosen === i));
        button.addEventListener("click", () => choose(i, true));
        list.append(button);
      }
    }
  };
  if (timeline) {
    timeline.addEventListener("pointermove", (event) => say(timeline.place(event.clientX), "Here:"));
    timeline.addEventListener("pointerleave", () => { if (state.chosen !== null) say(state.chosen, "Chosen:"); else byId("timeline-now").textContent = ""; });
    timeline.addEventListener("click", (event) => choose(timeline.place(event.clientX), false));
    timeline.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowUp: 1, ArrowLeft: -1, ArrowDown: -1, PageUp: 10, PageDown: -10 }[event.key];
      const now = state.chosen ?? 0;
      let next = null;
      if (step !== undefined) next = Math.min(places.length - 1, Math.max(0, now + step));
      if (event.key === "Home") next = 0;
      if (event.key === "End") next = places.length - 1;
      if (next === null) return;
      event.preventDefault();
      choose(next, false);
    });
    if (rankings.length > 1) {
      rankings.forEach((ranking, k) => {
        const button = document.createElement("button");
        button.type = "button";
        button.textContent = LABELS[ranking.name] ?? ranking.name;
        button.addEventListener("click", () => {
          state.ranking = k;
          for (const other of byId("choose-ranking").children) other.setAttribute("aria-pressed", String(other === button));
          drawTimeline();
          listTops();
        });
        button.setAttribute("aria-pressed", String(k === rankings.length - 1));
        byId("choose-ranking").append(button);
      });
      state.ranking = rankings.length - 1;
    }
  }

  // ---- the EEG ----
  const traces = byId("traces");
  const drawTraces = () => {
    const shown = montages[state.montage].filter((trace) => !state.hidden.has(trace.name));
    const width = Math.max(300, traces.clientWidth);
    const row = shown.length > 12 ? 26 : shown.length > 5 ? 36 : 60;
    // Room above and below, so that the first and the last trace are not clipped.
    const left = state.montage === "bipolar" ? 62 : 46, right = 58, top = 8 + 1.3 * row, bottom = 24 + 1.5 * row;
    const height = top + bottom + row * Math.max(1, shown.length);
    const end = state.start + state.span;
    const x = (t) => left + ((t - state.start) / state.span) * (width - left - right);
    traces.setAttribute("viewBox", `0 0 ${width} ${height}`);
    traces.style.aspectRatio = `${width} / ${height}`;
    traces.replaceChildren();
    const clip = draw("clipPath", { id: "inside" });
    clip.append(draw("rect", { x: left, y: 2, width: width - left - right, height: height - 24 }));
    traces.append(clip);
    const ranking = rankings[state.ranking];
    const shade = (i, name) => {
      const a = Math.max(left, x(places[i])), b = Math.min(width - right, x(places[i] + data.window));
      if (b > a) traces.append(draw("rect", { class: name, "data-window": i, x: a, y: 4, width: b - a, height: height - 28 }));
    };
    if (ranking) for (const i of [...ranking.top, ...ranking.against]) if (i !== state.chosen) shade(i, "top");
    if (state.chosen !== null) shade(state.chosen, "chosen");
    const step = [0.5, 1, 2, 5, 10].find((s) => state.span / s <= width / 60) ?? 20;
    for (let t = Math.ceil(state.start / step) * step; t <= end + 1e-9; t += step) {
      traces.append(draw("line", { class: "second", x1: x(t), x2: x(t), y1: 4, y2: height - 24 }));
      if (x(t) < width - 14) traces.append(draw("text", { x: x(t), y: height - 8, "text-anchor": "middle" }, clock(t - recordingAt(t + 1e-4).offset)));
    }
    const stretches = eeg.stretches.filter((s) => s.start < end && s.end > state.start);
    const columns = Math.max(1, Math.floor(((state.span * eeg.rate) / (width - left - right)) / 2));
    shown.forEach((trace, place) => {
      const middle = top + row * (place + 0.5);
      let path = "", sum = 0, count = 0;
      const range = (s) => [Math.max(0, Math.floor((state.start - s.start) * eeg.rate)), Math.min(s.n, Math.ceil((end - s.start) * eeg.rate) + 1)];
      for (const s of stretches) {
        const [from, to] = range(s);
        for (let i = from; i < to; i += 1) { sum += value(s, trace, i); count += 1; }
      }
      const mean = count ? sum / count : 0;
      const y = (v) => (middle - ((v - mean) / state.gain) * row).toFixed(1);
      for (const s of stretches) {
        const [from, to] = range(s);
        let pen = "M";
        for (let i = from; i < to; i += columns) {
          let low = Infinity, high = -Infinity;
          for (let j = i; j < Math.min(to, i + columns); j += 1) { const v = value(s, trace, j); low = Math.min(low, v); high = Math.max(high, v); }
          const at = Math.min(width - right, Math.max(left, x(s.start + i / eeg.rate))).toFixed(1);
          path += columns > 1 ? `${pen}${at} ${y(low)}L${at} ${y(high)}` : `${pen}${at} ${y(low)}`;
          pen = "L";
        }
      }
      traces.append(draw("text", { class: "channel", x: left - 6, y: middle + 4, "text-anchor": "end" }, trace.name));
      if (path) traces.append(draw("path", { class: "trace", "clip-path": "url(#inside)", "data-channel": trace.name, d: path }));
    });
    // The scale bar: its height is the gain, its width a second.
    const second = x(state.start + 1) - x(state.start), bar = width - right + 8, foot = top + row * 1.5;
    traces.append(draw("path", { class: "scale-bar", d: `M${bar} ${foot - row}V${foot}${second < right - 12 ? `h${second}` : ""}` }));
    traces.append(draw("text", { class: "scale-text", x: bar + 4, y: foot - row / 2 + 4 }, amplitude(state.gain)));
    if (second < right - 12) traces.append(draw("text", { x: bar, y: foot + 14 }, "1 s"));
    const here = state.chosen !== null && places[state.chosen] < end && places[state.chosen] + data.window > state.start ? `; shaded: window ${state.chosen + 1}` : "";
    const lost = stretches.length ? "" : " This second is not in the page; choose one of the listed windows.";
    byId("traces-now").textContent = `${when(state.start)} to ${clock(Math.min(end, last) - recordingAt(Math.min(end, last) - 1e-3).offset)}, gain ${amplitude(state.gain)} per trace${here}.${lost}`;
  };
  const redraw = () => { drawTimeline(); drawTraces(); };
  const move = (seconds) => { state.start = Math.min(Math.max(first, state.start + seconds), Math.max(first, last - state.span)); redraw(); };
  const zoom = (step) => {
    const middle = state.start + state.span / 2;
    const at = SPANS.findIndex((v) => v >= state.span - 1e-9);
    const wanted = at < 0 ? SPANS.length - 1 : at + step;
    state.span = Math.min(SPANS[Math.min(SPANS.length - 1, Math.max(0, wanted))], last - first);
    state.start = middle - state.span / 2;
    move(0);
  };
  const actions = {
    back: () => move(-state.span / 2), forward: () => move(state.span / 2), in: () => zoom(-1), out: () => zoom(1),
    louder: () => { state.gain = round125(state.gain / 2.6); drawTraces(); },
    softer: () => { state.gain = round125(state.gain * 1.1); drawTraces(); },
    auto: () => { state.gain = automatic(); drawTraces(); },
    all: () => { state.hidden.clear(); listChannels(); },
    none: () => { for (const trace of montages[state.montage]) state.hidden.add(trace.name); listChannels(); },
  };
  for (const button of document.querySelectorAll("button[data-do]")) button.addEventListener("click", actions[button.dataset.do]);
  traces.addEventListener("keydown", (event) => {
    const action = { ArrowLeft: "back", ArrowRight: "forward", "+": "in", "=": "in", "-": "out", ArrowUp: "louder", ArrowDown: "softer" }[event.key];
    if (!action) return;
    event.preventDefault();
    actions[action]();
  });
  traces.addEventListener("pointerdown", (event) => {
    const from = event.clientX, start = state.start, width = traces.getBoundingClientRect().width;
    const drag = (moved) => { state.start = start; move(((from - moved.clientX) / width) * state.span); };
    const drop = () => { removeEventListener("pointermove", drag); removeEventListener("pointerup", drop); };
    addEventListener("pointermove", drag);
    addEventListener("pointerup", drop);
  });
  traces.addEventListener("wheel", (event) => {
    if (event.ctrlKey) { event.preventDefault(); zoom(event.deltaY > 0 ? 1 : -1); }
    else if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) { event.preventDefault(); move((event.deltaX / 600) * state.span); }
  }, { passive: false });
  const listChannels = () => {
    byId("channels").replaceChildren();
    for (const { name } of montages[state.montage]) {
      const label = document.createElement("label");
      const box = document.createElement("input");
      Object.assign(box, { type: "checkbox", value: name, checked: !state.hidden.has(name) });
      box.addEventListener("change", () => { if (box.checked) state.hidden.delete(name); else state.hidden.add(name); drawTraces(); });
      label.append(box, ` ${name}`);
      byId("channels").append(label);
    }
    drawTraces();
  };
  byId("montages").hidden = !montages.bipolar.length;
  for (const button of document.querySelectorAll("button[data-montage]")) {
    button.addEventListener("click", () => {
      for (const other of document.querySelectorAll("button[data-montage]")) other.setAttribute("aria-pressed", String(other === button));
      state.montage = button.dataset.montage;
      state.gain = automatic();
      listChannels();
    });
  }
  listChannels();
  if (timeline) { listTops(); choose(rankings[state.ranking].top[0] ?? 0, false); } else redraw();
  addEventListener("resize", redraw);
})();
