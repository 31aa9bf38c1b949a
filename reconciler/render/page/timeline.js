"use strict";
// What was recorded: numbers in a row, texts by their places in one list, times in seconds after the first.
const DATA = JSON.parse(document.getElementById("data").textContent);
const BAR_NUMBERS = 10;
const MARK_NUMBERS = 4;
const RUN_NUMBERS = 11;
const DAY_S = 86400;

function chunks(numbers, size) {
  return Array.from({ length: numbers.length / size }, (_, place) => numbers.slice(place * size, (place + 1) * size));
}

function readBars(key, numbers, odd) {
  const bars = chunks(numbers, BAR_NUMBERS).map(
    ([number, begin, wait, length, state, open, track, nodes, digest, run]) => ({
      kind: "bar", key, number, begin, end: begin + length, started: wait < 0 ? null : begin + wait,
      state, open: (open & 1) > 0, found: (open & 2) > 0, track, nodes, digest, run,
      name: number === 1 ? key : `${key}-r${number}`, phase: "",
    }));
  chunks(odd, 3).forEach(([place, name, phase]) => {
    Object.assign(bars[place], { name: DATA.texts[name], phase: DATA.texts[phase] });
  });
  return bars;
}

function readMarks(key, numbers) {
  return chunks(numbers, MARK_NUMBERS).map(
    ([what, at, text, run]) => ({ kind: "mark", key, what, begin: at, end: at, text: DATA.texts[text], run }));
}

const RUNS = chunks(DATA.runs, RUN_NUMBERS).map(
  ([id, isCheck, rank, begin, length, command, word, who, where, commit, counts]) => ({
    kind: "run", id, isCheck: isCheck === 1, rank, begin, end: begin + Math.max(0, length), length,
    command: DATA.texts[command], word: DATA.texts[word], who: DATA.texts[who], where: DATA.texts[where],
    commit: DATA.texts[commit], counts: DATA.texts[counts],
  }));
const RUN_BY_ID = new Map(RUNS.map((run) => [run.id, run]));

// ── in words ────────────────────────────────────────────────────────────────────────────────────────

function spellTime(at) {
  return `${new Date((DATA.begin + at) * 1000).toISOString().slice(0, 19).replace("T", " ")} UTC`;
}

function spellSpan(seconds) {
  for (const [unit, size, most] of [["s", 1, 120], ["min", 60, 120], ["h", 3600, 72], ["d", DAY_S, Infinity]]) {
    if (seconds < size * most) return `${Math.round((seconds / size) * 10) / 10} ${unit}`;
  }
  return "";
}

function spellRun(id) {
  const run = RUN_BY_ID.get(id);
  return run ? `${run.command} #${id}${run.who ? `, ${run.who}` : ""}` : `run #${id}`;
}

function barState(bar) {
  const [word] = DATA.states[bar.state];
  return bar.phase && word === "unknown" ? `unknown phase ${bar.phase}` : word;
}

function spellSpans(bar) {
  const from = bar.started === null ? bar.end : bar.started;
  const queued = from > bar.begin ? [`queued ${spellSpan(from - bar.begin)}`] : [];
  const ran = bar.started !== null ? [`ran ${spellSpan(bar.end - bar.started)}`] : [];
  return [...queued, ...ran, bar.open ? "no end is known" : `ended ${spellTime(bar.end)}`].join(", ");
}

function describeBar(bar) {
  return [
    `${bar.key} r${bar.number}: ${barState(bar)}`,
    ...(bar.name !== bar.key ? [`job ${bar.name}`] : []),
    `${bar.found ? "first seen" : "created"} ${spellTime(bar.begin)}${bar.run ? ` by ${spellRun(bar.run)}` : ""}`,
    spellSpans(bar),
    `${bar.nodes} ${bar.nodes === 1 ? "node" : "nodes"}, digest ${DATA.texts[bar.digest] || "not known"}`,
  ];
}

function describeMark(mark) {
  const [word] = DATA.marks[mark.what];
  return [
    `${mark.key}: ${word}`,
    spellTime(mark.begin) + (mark.run ? `, ${spellRun(mark.run)}` : ""),
    ...(mark.text ? [mark.text] : []),
  ];
}

function describeRun(run) {
  return [
    `${run.command} #${run.id}: ${run.word}`,
    spellTime(run.begin) + (run.length >= 0 ? `, took ${spellSpan(run.length)}` : ""),
    ...(run.who || run.where ? [`by ${[run.who, run.where].filter(Boolean).join(" on ")}`] : []),
    ...(run.commit ? [`commit ${run.commit.slice(0, 12)}`] : []),
    ...(run.counts ? [run.counts] : []),
  ];
}

const DESCRIBE = { bar: describeBar, mark: describeMark, run: describeRun };
const WORD = { bar: barState, mark: (mark) => DATA.marks[mark.what][0], run: (run) => run.word };

// Several that lie too close to be told apart are counted.
function describe(items) {
  if (items.length === 1) return DESCRIBE[items[0].kind](items[0]);
  const counts = new Map();
  items.forEach((item) => counts.set(WORD[item.kind](item), (counts.get(WORD[item.kind](item)) || 0) + 1));
  const what = { bar: "revisions", mark: "changes", run: "runs" }[items[0].kind];
  return [
    `${items[0].key ? `${items[0].key}: ` : ""}${items.length} ${what}`,
    `${spellTime(items[0].begin)} to ${spellTime(items[items.length - 1].end)}`,
    [...counts].map(([word, count]) => `${count} ${word}`).join(", "),
    "zoom in to tell them apart",
  ];
}
// ── what part of the time is in view, and its axis ──────────────────────────────────────────────────

const SVG = document.querySelector("#overview svg").namespaceURI;
const LEAST_SPAN_S = 60;
const PAD = 0.015;
const WHOLE = Math.max(LEAST_SPAN_S, DATA.end);
const BOUNDS = { from: -WHOLE * PAD, to: DATA.end + WHOLE * PAD };
const view = { from: BOUNDS.from, to: BOUNDS.to, width: 800 };
// Seconds; from a month on in months, below zero.
const STEPS = [60, 300, 900, 1800, 3600, 10800, 21600, 43200, DAY_S, 2 * DAY_S, 7 * DAY_S, 14 * DAY_S, -1, -3, -12, -60];
const LEAST_TICK = 76;
const TICK_TEXT = 44;

function element(name, attributes = {}, ...children) {
  const made = document.createElementNS(SVG, name);
  Object.entries(attributes).forEach(([attribute, value]) => made.setAttribute(attribute, value));
  made.append(...children);
  return made;
}

function html(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  Object.entries(attributes).forEach(([attribute, value]) => made.setAttribute(attribute, value));
  made.append(...children);
  return made;
}

function xOf(at) {
  return Math.round(((at - view.from) / (view.to - view.from)) * view.width * 10) / 10;
}

function timeAt(x) {
  return view.from + (x / view.width) * (view.to - view.from);
}

function isInView(item) {
  return item.end >= view.from && item.begin <= view.to;
}

function clamp(value, least, most) {
  return Math.min(Math.max(value, least), most);
}

function setPeriod(from, to) {
  const span = clamp(to - from, LEAST_SPAN_S, BOUNDS.to - BOUNDS.from);
  view.from = clamp(from + (to - from - span) / 2, BOUNDS.from, BOUNDS.to - span);
  view.to = view.from + span;
}

function zoom(factor, at = (view.from + view.to) / 2) {
  const span = clamp((view.to - view.from) * factor, LEAST_SPAN_S, BOUNDS.to - BOUNDS.from);
  const share = (at - view.from) / (view.to - view.from);
  setPeriod(at - share * span, at + (1 - share) * span);
}

function pan(share) {
  const by = (view.to - view.from) * share;
  setPeriod(view.from + by, view.to + by);
}

// ── ticks ───────────────────────────────────────────────────────────────────────────────────────────

function stepInView() {
  const least = ((view.to - view.from) * LEAST_TICK) / view.width;
  return STEPS.find((step) => (step > 0 ? step : -step * 30 * DAY_S) >= least) || STEPS[STEPS.length - 1];
}

// The times that are whole multiples of a step; weeks begin on Mondays, as 1970-01-05 did.
function ticks(step, from = view.from, to = view.to) {
  const found = [];
  if (step > 0) {
    const shift = step % (7 * DAY_S) === 0 ? 4 * DAY_S : 0;
    const first = Math.ceil((DATA.begin + from - shift) / step) * step + shift - DATA.begin;
    for (let at = first; at <= to; at += step) found.push(at);
    return found;
  }
  const date = new Date((DATA.begin + from) * 1000);
  let month = Math.floor((date.getUTCFullYear() * 12 + date.getUTCMonth()) / -step) * -step;
  for (;; month -= step) {
    const at = Date.UTC(Math.floor(month / 12), month % 12, 1) / 1000 - DATA.begin;
    if (at > to) return found;
    if (at >= from) found.push(at);
  }
}

const OUTER = { time: DAY_S, day: -1, month: -12 };

function unitOf(step) {
  return step < 0 ? "month" : step < DAY_S ? "time" : "day";
}

function spellTick(at, format) {
  return new Intl.DateTimeFormat("en-GB", { timeZone: "UTC", ...format }).format(new Date((DATA.begin + at) * 1000));
}

const INNER_FORMATS = {
  time: { hour: "2-digit", minute: "2-digit" },
  day: { weekday: "short", day: "numeric" },
  month: { month: "short" },
};
const OUTER_FORMATS = {
  time: { weekday: "short", day: "numeric", month: "long", year: "numeric" },
  day: { month: "long", year: "numeric" },
  month: { year: "numeric" },
};

function axisText(text, x, y, more) {
  return element("text", { class: `axis-text ${more}`, x, y }, text);
}

function drawAxis(svg) {
  const step = stepInView();
  const unit = unitOf(step);
  // What would be cut off at the right edge is not named.
  const inner = ticks(step)
    .filter((at) => xOf(at) < view.width - TICK_TEXT)
    .map((at) => axisText(spellTick(at, INNER_FORMATS[unit]), xOf(at) + 3, 31, ""));
  const outer = ticks(OUTER[unit]);
  const places = outer.map((at) => ({ at, x: xOf(at) + 3 }));
  if (!places.length || places[0].x > 140) places.unshift({ at: view.from, x: 3 });
  const named = places
    .filter((one, place) => place === 0 || one.x - places[place - 1].x > 60)
    .map(({ at, x }) => axisText(spellTick(at, OUTER_FORMATS[unit]), x, 13, "outer"));
  const lines = element("path", { class: "grid", d: ticks(step).map((at) => `M${xOf(at)} 20V36`).join("") });
  svg.setAttribute("height", 36);
  svg.replaceChildren(lines, ...named, ...inner, ...nowLine(36));
}

function nowLine(height) {
  const x = xOf(DATA.now);
  return x >= 0 && x <= view.width ? [element("path", { class: "now", d: `M${x} 0V${height}` })] : [];
}

// The background of a lane: weekends as far as days can be told apart, and a line per tick.
function backdrop(height) {
  const step = stepInView();
  const made = [];
  if (step > 0 && step <= 7 * DAY_S) {
    const saturdays = ticks(7 * DAY_S, view.from - 7 * DAY_S).map((monday) => monday + 5 * DAY_S);
    const d = saturdays.map((at) => `M${xOf(at)} 0H${xOf(at + 2 * DAY_S)}V${height}H${xOf(at)}Z`).join("");
    made.push(element("path", { class: "weekends", d }));
  }
  made.push(element("path", { class: "grid", d: ticks(step).map((at) => `M${xOf(at)} 0V${height}`).join("") }));
  return [...made, ...nowLine(height)];
}
// ── lanes ───────────────────────────────────────────────────────────────────────────────────────────

const TRACK = 18;
const MARK_ROW = 14;
const LEAST_BAR = 3;
const CLUSTER = 6;
const TALL = new Set(["failed", "abnormal", "terminated elsewhere", "unknown"]);
// Lines across a bar, so that how it ended reads without colour.
const HATCHES = { failed: ["/"], abnormal: ["/", "\\"], "terminated elsewhere": ["\\"] };
const HOLLOW = { queued: " dashed", terminating: " dashed", released: "", unknown: "" };
// The one that a group of bars is shown as, if it holds one.
const WORST = ["failed", "abnormal", "terminated elsewhere", "unknown", "running", "terminating", "queued", "released", "terminated", "completed"];

class Lane {
  constructor(row, bars, marks, runs) {
    this.row = row;
    this.cell = row.querySelector(".lane");
    this.button = row.querySelector(".key");
    this.bars = bars;
    this.marks = marks;
    this.runs = runs;
    this.items = [...bars, ...marks, ...runs].sort((one, other) => one.begin - other.begin || one.end - other.end);
    const tracks = bars.reduce((most, bar) => Math.max(most, bar.track + 1), 1);
    this.top = marks.length ? MARK_ROW : 3;
    this.height = (runs.length || !bars.length ? 0 : tracks * TRACK) + this.top + (bars.length ? 3 : runs.length ? 21 : 10);
    this.svg = element("svg", { height: this.height, "aria-hidden": "true" });
    this.cell.append(this.svg);
    this.isNear = false;
    this.drawn = "";
  }

  get isShown() {
    return !this.row.hidden;
  }

  draw() {
    const wanted = `${view.from} ${view.to} ${view.width}`;
    if (this.drawn === wanted) return;
    this.drawn = wanted;
    const groups = [
      ...groupBars(this.bars.filter(isInView)).map((group) => barGroup(group, this.top)),
      ...groupPoints(this.marks.filter(isInView)).map((group) => markGroup(group, this.top / 2)),
      ...groupPoints(this.runs.filter(isInView)).map((group) => runGroup(group, this.height / 2)),
    ];
    this.groups = groups.sort((one, other) => one.items[0].begin - other.items[0].begin);
    this.svg.setAttribute("viewBox", `0 0 ${view.width} ${this.height}`);
    this.svg.replaceChildren(...backdrop(this.height), ...this.groups.map((group) => group.shape));
    this.groups.forEach((group) => { group.shape.group = group; });
  }

  groupOf(item) {
    return this.groups.find((group) => group.items.includes(item));
  }
}

// Bars of a track that are too narrow to be told apart become one, and so do those that lie upon each other: of more
// revisions at one time than there are tracks, none hides another.
function groupBars(bars) {
  const groups = [];
  const last = new Map();
  bars.forEach((bar) => {
    const x1 = xOf(bar.begin);
    const x2 = Math.max(xOf(bar.end), x1 + LEAST_BAR);
    const group = last.get(bar.track);
    if (group && (bar.begin < group.end - 2 || (x1 < group.x2 + 0.5 && x2 - group.x1 <= CLUSTER))) {
      group.items.push(bar);
      group.x2 = Math.max(group.x2, x2);
      group.end = Math.max(group.end, bar.end);
    } else {
      const made = { items: [bar], x1, x2, end: bar.end, track: bar.track };
      last.set(bar.track, made);
      groups.push(made);
    }
  });
  return groups;
}

function groupPoints(points) {
  const groups = [];
  points.forEach((point) => {
    const x = xOf(point.begin);
    const group = groups[groups.length - 1];
    if (group && x - group.x1 < 8) group.items.push(point);
    else groups.push({ items: [point], x1: x, x2: x });
  });
  return groups;
}

function item(css, group, ...children) {
  const [first] = group.items;
  const about = first.kind === "bar" ? { "data-revision": first.number, "data-state": barState(first) } : {};
  return element("g", { class: `item ${css}`, tabindex: -1, role: "img", "data-kind": first.kind, ...about }, ...children);
}

function worstOf(bars) {
  const words = new Set(bars.map((bar) => DATA.states[bar.state][0]));
  return DATA.states.find(([word]) => word === WORST.find((one) => words.has(one)));
}

function barGroup(group, top) {
  const [word, css, letter] = worstOf(group.items);
  const [bar] = group.items;
  const middle = top + group.track * TRACK + TRACK / 2;
  const height = TALL.has(word) ? 14 : 10;
  const from = group.items.length === 1 && bar.started !== null ? Math.min(xOf(bar.started), group.x2 - LEAST_BAR) : group.x1;
  const x1 = Math.max(from, -20);
  const x2 = Math.min(group.x2, view.width + 20);
  const width = Math.max(x2 - x1, 1);
  const y = middle - height / 2;
  const made = [element("rect", { class: "halo", x: Math.max(group.x1, -20) - 2, y: y - 2, width: x2 - Math.max(group.x1, -20) + 4, height: height + 4, rx: 2 })];
  if (from > group.x1) {
    made.push(element("path", { class: "wait", d: `M${Math.max(group.x1, -20)} ${middle - 4}V${middle + 4}M${Math.max(group.x1, -20)} ${middle}H${x1}` }));
  }
  made.push(element("rect", { class: `body${HOLLOW[word] || ""}`, x: x1, y, width, height, rx: Math.min(2, width / 3) }));
  if (width >= 7) {
    (HATCHES[word] || []).forEach((slope) => made.push(element("path", { class: "hatch", d: hatch(x1, y, width, height, slope) })));
  }
  if (bar.open && group.items.length === 1 && x2 <= view.width) {
    made.push(element("path", { class: "open", d: `M${x2} ${middle - 5}l5 5l-5 5Z` }));
  }
  if (width >= 13) {
    const left = Math.max(x1, 0);
    const right = Math.min(x2, view.width);
    const more = group.items.length === 1 ? `r${bar.number}` : `×${group.items.length}`;
    const text = width >= 42 ? `${letter} ${more}` : letter;
    const [x, half] = [(left + right) / 2, text.length * 3 + 3];
    if (HATCHES[word]) made.push(element("rect", { class: "plate", x: x - half, y, width: 2 * half, height }));
    made.push(element("text", { x, y: middle + 3.6 }, text));
  }
  return { ...group, shape: item(css, group, ...made) };
}

function hatch(x, y, width, height, slope) {
  let d = "";
  for (let at = -height; at < width; at += 6) {
    const from = clamp(at, 0, width);
    const to = clamp(at + height, 0, width);
    const [a, b] = [from - at, to - at];
    d += slope === "/" ? `M${x + from} ${y + height - a}L${x + to} ${y + height - b}` : `M${x + from} ${y + a}L${x + to} ${y + b}`;
  }
  return d;
}

function markGroup(group, middle) {
  const looks = group.items.map((mark) => DATA.marks[mark.what]);
  const [, css, letter] = looks.find(([, look]) => look === "outside") || looks.find(([, look]) => look === "failure") || looks[0];
  const x = group.x1;
  const shape = css === "outside"
    ? element("path", { class: "shape", d: `M${x - 6} ${middle - 6}h12v12h-12Z` })
    : element("path", { class: css === "ours" ? "ours-shape" : "shape", d: circle(x, middle, 6) });
  const text = element("text", { x, y: middle + 3.4, class: css === "ours" ? "plain" : "" }, group.items.length > 1 ? String(Math.min(group.items.length, 99)) : letter);
  const halo = element("path", { class: "halo", d: circle(x, middle, 8) });
  return { ...group, shape: item(css, group, halo, shape, text) };
}

function circle(x, y, r) {
  return `M${x - r} ${y}a${r} ${r} 0 1 0 ${2 * r} 0a${r} ${r} 0 1 0 ${-2 * r} 0Z`;
}

// A run is a dot if all went well, a diamond if there is something to know, a square if it went wrong.
function runGroup(group, middle) {
  const rank = group.items.reduce((worst, run) => Math.max(worst, run.rank), 0);
  const x = group.x1;
  const d = [circle(x, middle, 4), `M${x} ${middle - 7}l7 7l-7 7l-7 -7Z`, `M${x - 6} ${middle - 6}h12v12h-12Z`][rank];
  const worst = group.items.find((run) => run.rank === rank);
  const letter = rank === 0 ? [] : [element("text", { x, y: middle + 3.6 }, rank === 2 ? "!" : worst.word[0].toUpperCase())];
  const halo = element("path", { class: "halo", d: circle(x, middle, 9) });
  return { ...group, shape: item(DATA.ranks[rank], group, halo, element("path", { class: "shape", d }), ...letter) };
}
// ── the overview: how many jobs were active when ────────────────────────────────────────────────────

const OVERVIEW = 46;
const COLUMN = 4;
const BAD = new Set(["failed", "abnormal", "terminated elsewhere"]);

class Overview {
  constructor(cell) {
    this.cell = cell;
    this.svg = cell.querySelector("svg");
    this.svg.setAttribute("height", OVERVIEW);
    this.window = element("rect", { class: "window", y: 0.5, height: OVERVIEW - 1 });
  }

  // Where a time lies in the overview, which always shows all of it.
  xOf(at) {
    return ((at - BOUNDS.from) / (BOUNDS.to - BOUNDS.from)) * view.width;
  }

  timeAt(x) {
    return BOUNDS.from + (x / view.width) * (BOUNDS.to - BOUNDS.from);
  }

  // A column per few pixels: as high as jobs were active at once, on average; red what ended badly later.
  drawLoad(lanes) {
    const columns = Math.max(1, Math.floor(view.width / COLUMN));
    const loads = [new Float64Array(columns), new Float64Array(columns)];
    lanes.forEach((lane) => lane.bars.forEach((bar) => {
      const load = loads[BAD.has(DATA.states[bar.state][0]) ? 1 : 0];
      const from = clamp((this.xOf(bar.begin) / view.width) * columns, 0, columns);
      const to = clamp((this.xOf(bar.end) / view.width) * columns, from + 0.001, columns);
      for (let column = Math.floor(from); column < to; column += 1) {
        load[column] += Math.min(to, column + 1) - Math.max(from, column);
      }
    }));
    const most = loads[0].reduce((found, load, column) => Math.max(found, load + loads[1][column]), 0.001);
    document.getElementById("most").value = most >= 1 ? `at most ${Math.round(most)}` : "";
    const scale = (OVERVIEW - 6) / most;
    const paths = ["", ""];
    for (let column = 0; column < columns; column += 1) {
      let y = OVERVIEW - 2;
      [1, 0].forEach((kind) => {
        const height = loads[kind][column] * scale;
        if (height > 0) paths[kind] += `M${column * COLUMN} ${y.toFixed(1)}h${COLUMN - 1}v${(-Math.max(height, kind ? 1.5 : 0.5)).toFixed(1)}h${1 - COLUMN}Z`;
        y -= height;
      });
    }
    this.svg.setAttribute("viewBox", `0 0 ${view.width} ${OVERVIEW}`);
    this.svg.replaceChildren(
      element("path", { class: "load", d: paths[0] }), element("path", { class: "load ill", d: paths[1] }), this.window);
  }

  drawWindow() {
    const x = this.xOf(view.from);
    this.window.setAttribute("x", x);
    this.window.setAttribute("width", Math.max(3, this.xOf(view.to) - x));
  }
}

// ── the list below a key ────────────────────────────────────────────────────────────────────────────

const MOST_LISTED = 200;

function table(caption, names, rows) {
  const head = html("tr", {}, ...names.map((name) => html("th", { scope: "col" }, name)));
  const body = rows.map((cells) => html("tr", {}, ...cells.map((cell) => html("td", {}, cell))));
  return html("table", {}, html("caption", { class: "words" }, caption), html("thead", {}, head), html("tbody", {}, ...body));
}

function barRow(bar) {
  const from = bar.started === null ? bar.end : bar.started;
  return [
    `r${bar.number}`, barState(bar), `${bar.found ? "before " : ""}${spellTime(bar.begin)}`, from > bar.begin ? spellSpan(from - bar.begin) : "-",
    bar.started === null ? "-" : spellSpan(bar.end - bar.started), String(bar.nodes),
    DATA.texts[bar.digest], bar.run ? spellRun(bar.run) : "-",
  ];
}

const LISTS = {
  bars: ["Revisions", ["Revision", "Phase", "Created", "Queued", "Ran", "Nodes", "Digest", "Created by"], barRow],
  marks: ["Changes", ["What", "When", "Detail"], (mark) => [WORD.mark(mark), spellTime(mark.begin), mark.text]],
  runs: ["Runs", ["Run", "Result", "When", "By", "Outcome"],
    (run) => [`${run.command} #${run.id}`, run.word, spellTime(run.begin), run.who, run.counts]],
};

function listOf(lane) {
  const cell = html("td", { colspan: 2 });
  Object.entries(LISTS).forEach(([name, [caption, names, rowOf]]) => {
    if (!lane[name].length) return;
    const newest = lane[name].slice(-MOST_LISTED).reverse();
    cell.append(table(`${caption} of ${lane.button.textContent}`, names, newest.map(rowOf)));
    const more = lane[name].length - newest.length;
    if (more) cell.append(html("p", { class: "dim" }, `and ${more} more, older ones`));
  });
  return html("tr", { class: "detail" }, cell);
}
// ── what a reader does ──────────────────────────────────────────────────────────────────────────────

const filter = document.getElementById("filter");
const shown = document.getElementById("shown");
const busy = document.getElementById("busy");
const period = document.getElementById("period");
const tip = document.getElementById("tip");
const spoken = document.getElementById("spoken");
const axisCell = document.getElementById("axis");
const axisSvg = element("svg", { "aria-hidden": "true" });
const overview = new Overview(document.getElementById("overview"));
const presets = [...document.querySelectorAll("[data-days]")];
const PRINTED_WIDTH = 860;

document.documentElement.classList.remove("still");
axisCell.append(axisSvg);
const runLanes = [...document.querySelectorAll("[data-runs]")].map(
  (row) => new Lane(row, [], [], RUNS.filter((run) => run.isCheck === (row.dataset.runs === "checks"))));
const keyLanes = [...document.querySelectorAll("[data-key]")].map((row, place) => {
  const [bars, odd, marks] = DATA.lanes[place];
  return new Lane(row, readBars(row.dataset.key, bars, odd), readMarks(row.dataset.key, marks), []);
});
const lanes = [...runLanes, ...keyLanes];
const laneOf = new Map(lanes.map((lane) => [lane.row, lane]));
const texts = keyLanes.map((lane) => lane.row.textContent.toLowerCase());

// ── drawing ─────────────────────────────────────────────────────────────────────────────────────────

let isDue = false;

function draw() {
  isDue = false;
  const kept = focusedItem();
  drawAxis(axisSvg);
  axisSvg.setAttribute("viewBox", `0 0 ${view.width} 36`);
  overview.drawWindow();
  if (busy.checked) showMatches();
  lanes.filter((lane) => lane.isNear && lane.isShown).forEach((lane) => lane.draw());
  period.value = `${spellTime(view.from).slice(0, 16)} – ${spellTime(view.to).slice(0, 16)}`;
  presets.forEach((one) => one.setAttribute("aria-pressed", String(isPreset(Number(one.dataset.days)))));
  if (kept && isInView(kept.item) && kept.lane.isShown) focusItem(kept.lane, kept.item);
  else if (kept && kept.lane.isShown) kept.lane.button.focus({ preventScroll: true });
}

function drawSoon() {
  if (!isDue) requestAnimationFrame(draw);
  isDue = true;
}

function change(how) {
  hideTip();
  how();
  drawSoon();
}

function isPreset(days) {
  return Math.abs(view.to - view.from - days * DAY_S) < 1 && view.to >= DATA.now;
}

function measure() {
  const width = Math.round(axisCell.clientWidth);
  if (!width || width === view.width) return;
  view.width = width;
  overview.drawLoad(keyLanes.filter((lane) => lane.isShown));
  drawSoon();
}

const near = new IntersectionObserver((entries) => {
  entries.forEach((entry) => { laneOf.get(entry.target).isNear = entry.isIntersecting; });
  drawSoon();
}, { rootMargin: "300px" });

// ── filter ──────────────────────────────────────────────────────────────────────────────────────────

function showMatches() {
  const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
  keyLanes.forEach((lane, place) => {
    const isMatch = words.every((word) => texts[place].includes(word));
    lane.row.hidden = !isMatch || (busy.checked && !lane.items.some(isInView));
  });
  const left = keyLanes.filter((lane) => lane.isShown);
  shown.value = `${left.length} of ${keyLanes.length}`;
  document.getElementById("nothing").hidden = left.length > 0 || !keyLanes.length;
  return left;
}

function applyFilter() {
  closeLists();
  overview.drawLoad(showMatches());
  drawSoon();
}

// ── the tip, and the focus ──────────────────────────────────────────────────────────────────────────

function showTip(group) {
  const lines = describe(group.items);
  tip.replaceChildren(...lines.map((line) => html("p", {}, line)));
  tip.hidden = false;
  const box = group.shape.getBoundingClientRect();
  const size = tip.getBoundingClientRect();
  const below = box.bottom + 8 + size.height < innerHeight;
  tip.style.left = `${clamp((Math.max(box.left, 0) + Math.min(box.right, innerWidth)) / 2 - size.width / 2, 8, innerWidth - size.width - 8)}px`;
  tip.style.top = `${below ? box.bottom + 8 : Math.max(8, box.top - size.height - 8)}px`;
  return lines;
}

function hideTip() {
  tip.hidden = true;
}

function groupAt(target) {
  const shape = target instanceof Element ? target.closest(".item") : null;
  return shape ? shape.group : null;
}

function focusedItem() {
  const group = groupAt(document.activeElement);
  return group ? { lane: laneOf.get(group.shape.closest("tr")), item: group.chosen || group.items[0] } : null;
}

function focusItem(lane, item) {
  lane.drawn = lane.isNear ? lane.drawn : "";
  lane.draw();
  const group = lane.groupOf(item);
  if (!group) return;
  group.chosen = item;
  group.shape.setAttribute("aria-label", describe(group.items).join("; "));
  lane.svg.removeAttribute("aria-hidden");
  group.shape.focus({ preventScroll: true });
  lane.row.scrollIntoView({ block: "nearest" });
  spoken.textContent = showTip(group).join("; ");
}

// Bring an item into view if it is not, and go there.
function goTo(lane, item) {
  const span = view.to - view.from;
  if (item.begin > view.to || item.end < view.from) setPeriod(item.begin - span / 2, item.begin + span / 2);
  draw();
  focusItem(lane, item);
}

function zoomTo(items) {
  const from = items[0].begin;
  const to = Math.max(...items.map((one) => one.end));
  const room = Math.max((to - from) * 1.5, items[0].kind === "bar" ? 600 : DAY_S / 4);
  setPeriod(from - room, to + room);
}

function step(lane, from, direction) {
  const group = lane.groupOf(from);
  const items = group ? group.items : [from];
  const places = items.map((one) => lane.items.indexOf(one));
  const next = direction < 0 ? Math.min(...places) - 1 : Math.max(...places) + 1;
  if (lane.items[next]) goTo(lane, lane.items[next]);
}

function otherLane(lane, direction, isWanted) {
  const those = lanes.filter((one) => one.isShown && (one === lane || isWanted(one)));
  return those[those.indexOf(lane) + direction];
}

function moveDown(lane, item, direction) {
  const other = otherLane(lane, direction, (one) => one.items.length > 0);
  if (!other) return;
  const at = item.begin;
  goTo(other, other.items.reduce((best, one) => (Math.abs(one.begin - at) < Math.abs(best.begin - at) ? one : best)));
}

// ── keyboard ────────────────────────────────────────────────────────────────────────────────────────

// Around what has the focus, else around the middle.
function zoomHere(factor) {
  const kept = focusedItem();
  zoom(factor, kept ? clamp(kept.item.begin, view.from, view.to) : undefined);
}

const VIEW_KEYS = {
  "+": () => zoomHere(0.5), "=": () => zoomHere(0.5), "-": () => zoomHere(2), _: () => zoomHere(2),
  0: () => setPeriod(BOUNDS.from, BOUNDS.to),
};

function onItem(key, { lane, item }) {
  if (key === "ArrowLeft" || key === "ArrowRight") step(lane, item, key === "ArrowLeft" ? -1 : 1);
  else if (key === "ArrowUp" || key === "ArrowDown") moveDown(lane, item, key === "ArrowUp" ? -1 : 1);
  else if (key === "Home" || key === "End") goTo(lane, key === "Home" ? lane.items[0] : lane.items[lane.items.length - 1]);
  else if (key === "Enter") { zoomTo(lane.groupOf(item).items); goTo(lane, item); }
  else if (key === "Escape" && tip.hidden) lane.button.focus();
  else if (key === "Escape") hideTip();
  else return false;
  return true;
}

function onKey(key, lane) {
  const inView = lane.items.filter(isInView);
  const there = inView.length ? inView : lane.items;
  if (key === "ArrowRight" && there.length) goTo(lane, there[0]);
  else if (key === "ArrowLeft" && there.length) goTo(lane, there[there.length - 1]);
  else if (key === "ArrowUp" || key === "ArrowDown") {
    const other = otherLane(lane, key === "ArrowUp" ? -1 : 1, () => true);
    if (other) other.button.focus();
  } else return false;
  return true;
}

function pressed(event) {
  if (event.ctrlKey || event.metaKey || event.altKey) return false;
  const active = document.activeElement;
  if (active === filter) {
    if (event.key !== "Escape") return false;
    filter.value = "";
    applyFilter();
    return true;
  }
  if (event.key === "/") { filter.focus(); return true; }
  if (VIEW_KEYS[event.key]) { change(VIEW_KEYS[event.key]); return true; }
  if (event.shiftKey && (event.key === "ArrowLeft" || event.key === "ArrowRight")) {
    change(() => pan(event.key === "ArrowLeft" ? -0.2 : 0.2));
    return true;
  }
  const kept = focusedItem();
  if (kept) return onItem(event.key, kept);
  if (event.key === "Escape") { hideTip(); return true; }
  const lane = active && active.matches(".key") ? laneOf.get(active.closest("tr")) : null;
  return lane ? onKey(event.key, lane) : false;
}

document.addEventListener("keydown", (event) => { if (pressed(event)) event.preventDefault(); });

// ── mouse ───────────────────────────────────────────────────────────────────────────────────────────

function placeIn(cell, event) {
  return event.clientX - cell.getBoundingClientRect().left;
}

function wheel(event) {
  const cell = event.target instanceof Element ? event.target.closest(".lane, #axis, #overview") : null;
  if (!cell) return;
  const sideways = event.shiftKey && !event.deltaX ? event.deltaY : event.deltaX;
  if (event.ctrlKey || event.metaKey || (!sideways && !cell.matches(".lane"))) {
    const at = cell === overview.cell ? (view.from + view.to) / 2 : timeAt(placeIn(cell, event));
    change(() => zoom(1.0015 ** clamp(event.deltaY, -300, 300), at));
  } else if (sideways) change(() => pan(sideways / view.width));
  else return;
  event.preventDefault();
}

let drag = null;

function beginDrag(event) {
  const cell = event.target instanceof Element ? event.target.closest(".lane, #axis, #overview") : null;
  if (!cell || event.button !== 0) return;
  drag = { cell, x: placeIn(cell, event), from: view.from, to: view.to, isFar: false, id: event.pointerId };
}

function moveDrag(event) {
  if (!drag) return;
  const x = placeIn(drag.cell, event);
  if (!drag.isFar && Math.abs(x - drag.x) < 4) return;
  if (!drag.isFar) drag.cell.setPointerCapture(drag.id);
  drag.isFar = true;
  if (drag.cell === overview.cell) {
    const ends = [drag.x, x].map((one) => overview.timeAt(one)).sort((one, other) => one - other);
    change(() => setPeriod(...ends));
  } else {
    const by = ((drag.x - x) / view.width) * (drag.to - drag.from);
    change(() => setPeriod(drag.from + by, drag.to + by));
  }
}

function endDrag(event) {
  const [was, group] = [drag, groupAt(event.target)];
  drag = null;
  if (!was || was.isFar) return;
  if (was.cell === overview.cell) {
    const [at, span] = [overview.timeAt(was.x), view.to - view.from];
    change(() => setPeriod(at - span / 2, at + span / 2));
  } else if (group && group.items.length > 1) change(() => zoomTo(group.items));
}

document.addEventListener("wheel", wheel, { passive: false });
document.addEventListener("pointerdown", beginDrag);
document.addEventListener("pointermove", moveDrag);
document.addEventListener("pointerup", endDrag);
document.addEventListener("pointercancel", () => { drag = null; });
document.addEventListener("pointerover", (event) => {
  const group = groupAt(event.target);
  if (group && !drag) showTip(group);
  else if (!tip.contains(event.target)) hideTip();
});
document.addEventListener("scroll", hideTip, { passive: true });

// ── buttons, lists, paper ───────────────────────────────────────────────────────────────────────────

function closeLists() {
  document.querySelectorAll(".detail").forEach((row) => row.remove());
  document.querySelectorAll(".key").forEach((button) => button.setAttribute("aria-expanded", "false"));
}

function toggleList(button) {
  const lane = laneOf.get(button.closest("tr"));
  const isOpen = button.getAttribute("aria-expanded") === "true";
  button.setAttribute("aria-expanded", String(!isOpen));
  if (isOpen) lane.row.nextElementSibling.remove();
  else lane.row.after(listOf(lane));
}

document.querySelectorAll(".key").forEach((one) => one.addEventListener("click", () => toggleList(one)));
document.getElementById("zoom-in").addEventListener("click", () => change(() => zoom(0.5)));
document.getElementById("zoom-out").addEventListener("click", () => change(() => zoom(2)));
document.getElementById("everything").addEventListener("click", () => change(VIEW_KEYS[0]));
presets.forEach((one) => {
  const span = Number(one.dataset.days) * DAY_S;
  one.hidden = span >= BOUNDS.to - BOUNDS.from;
  one.addEventListener("click", () => change(() => setPeriod(DATA.now - span * (1 - PAD), DATA.now + span * PAD)));
});
filter.addEventListener("input", applyFilter);
busy.addEventListener("change", applyFilter);

let before = null;
addEventListener("beforeprint", () => {
  before = { ...view };
  view.width = PRINTED_WIDTH;
  lanes.filter((lane) => lane.isShown).forEach((lane) => { lane.isNear = true; });
  overview.drawLoad(keyLanes.filter((lane) => lane.isShown));
  draw();
});
addEventListener("afterprint", () => {
  view.width = before.width;
  lanes.forEach((lane) => { lane.isNear = false; });
  near.disconnect();
  lanes.forEach((lane) => near.observe(lane.row));
  overview.drawLoad(keyLanes.filter((lane) => lane.isShown));
  draw();
});

lanes.forEach((lane) => near.observe(lane.row));
new ResizeObserver(measure).observe(axisCell);
if (BOUNDS.to - BOUNDS.from > 95 * DAY_S) presets[presets.length - 1].click();
// What is in the window is drawn at once; of what comes into it later the observer tells.
lanes.forEach((lane) => { lane.isNear = lane.row.getBoundingClientRect().top < innerHeight; });
measure();
applyFilter();
draw();
