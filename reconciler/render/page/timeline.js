"use strict";
// What was recorded: texts by their places in one list, times in seconds after the first.
const DATA = JSON.parse(document.getElementById("data").textContent);
const DAY_S = 86400;

// ── in words ────────────────────────────────────────────────────────────────────────────────────────

function spellTime(at) {
  return `${new Date((DATA.begin + at) * 1000).toISOString().slice(0, 19).replace("T", " ")} UTC`;
}

function spellSpan(seconds) {
  const units = [["s", 1, 120], ["min", 60, 120], ["h", 3600, 72], ["d", DAY_S, Infinity]];
  const [unit, size] = units.find((one) => seconds < one[1] * one[2]);
  return `${Math.round((seconds / size) * 10) / 10} ${unit}`;
}

function spellRun(id) {
  const run = RUN_BY_ID.get(id);
  return run ? `${run.command} #${id}${run.who ? `, ${run.who}` : ""}` : `run #${id}`;
}

// A revision, a change or a run: `word` is its state, `lines` explain it, `cells` are its row in a list.
function readBar(key, [number, begin, wait, length, state, flags, track, nodes, digest, run, name, phase]) {
  const [word, css, letter] = DATA.states[state];
  const [end, queued] = [begin + length, wait < 0 ? length : wait];
  const bar = { kind: "bar", css, letter, number, begin, end, queued: wait < 0 ? 0 : wait, isOpen: (flags & 1) > 0, track };
  bar.word = phase && word === "unknown" ? `unknown phase ${DATA.texts[phase]}` : word;
  const spans = [
    queued > 0 ? `queued ${spellSpan(queued)}` : "", wait < 0 ? "" : `ran ${spellSpan(length - wait)}`,
    bar.isOpen ? "no end is known" : `ended ${spellTime(end)}`,
  ];
  bar.lines = () => [
    `${key} r${number}: ${bar.word}`,
    ...(name ? [`job ${DATA.texts[name]}`] : []),
    `${flags & 2 ? "first seen" : "created"} ${spellTime(begin)}${run ? ` by ${spellRun(run)}` : ""}`,
    spans.filter(Boolean).join(", "),
    `${nodes} ${nodes === 1 ? "node" : "nodes"}, digest ${DATA.texts[digest] || "not known"}`,
  ];
  bar.cells = () => [
    `r${number}`, bar.word, `${flags & 2 ? "before " : ""}${spellTime(begin)}`, queued > 0 ? spellSpan(queued) : "-",
    wait < 0 ? "-" : spellSpan(length - wait), String(nodes), DATA.texts[digest], run ? spellRun(run) : "-",
  ];
  return bar;
}

function readMark(key, [what, begin, place, run]) {
  const [word, look, letter] = DATA.marks[what];
  const text = DATA.texts[place];
  const lines = () => [`${key}: ${word}`, spellTime(begin) + (run ? `, ${spellRun(run)}` : ""), ...(text ? [text] : [])];
  return { kind: "mark", word, look, letter, begin, end: begin, lines, cells: () => [word, spellTime(begin), text] };
}

function readRun([id, isCheck, rank, begin, length, ...places]) {
  const [command, word, who, where, commit, counts] = places.map((place) => DATA.texts[place]);
  const lines = () => [
    `${command} #${id}: ${word}`,
    spellTime(begin) + (length >= 0 ? `, took ${spellSpan(length)}` : ""),
    ...(who || where ? [`by ${[who, where].filter(Boolean).join(" on ")}`] : []),
    ...(commit ? [`commit ${commit.slice(0, 12)}`] : []),
    ...(counts ? [counts] : []),
  ];
  const cells = () => [`${command} #${id}`, word, spellTime(begin), who, counts];
  return { kind: "run", id, command, who, word, rank, isCheck: isCheck === 1, begin, end: begin + Math.max(0, length), lines, cells };
}

// Several that lie too close to be told apart are counted.
function describe(items) {
  if (items.length === 1) return items[0].lines();
  const counts = new Map();
  items.forEach(({ word }) => counts.set(word, (counts.get(word) || 0) + 1));
  return [
    `${items.length} ${{ bar: "revisions", mark: "changes", run: "runs" }[items[0].kind]}`,
    `${spellTime(items[0].begin)} to ${spellTime(items[items.length - 1].end)}`,
    [...counts].map(([word, count]) => `${count} ${word}`).join(", "),
    "zoom in to tell them apart",
  ];
}

const RUNS = DATA.runs.map(readRun);
const RUN_BY_ID = new Map(RUNS.map((run) => [run.id, run]));

// ── what part of the time is in view, and its axis ──────────────────────────────────────────────────

const axis = document.querySelector("#axis svg");
const LEAST_SPAN_S = 60;
const PAD = 0.015;
const WHOLE = Math.max(LEAST_SPAN_S, DATA.end);
const BOUNDS = { from: -WHOLE * PAD, to: DATA.end + WHOLE * PAD };
const view = { ...BOUNDS, width: 800 };
const STEPS = [60, 300, 900, 3600, 10800, 21600, DAY_S, 2 * DAY_S, 7 * DAY_S, 14 * DAY_S, 28 * DAY_S, 91 * DAY_S, 364 * DAY_S];
const LEAST_TICK = 90;

function element(space, name, attributes, ...children) {
  const made = document.createElementNS(space.namespaceURI, name);
  Object.entries(attributes).forEach(([attribute, value]) => made.setAttribute(attribute, value));
  made.append(...children);
  return made;
}

const svg = (name, attributes, ...children) => element(axis, name, attributes, ...children);
const html = (name, attributes, ...children) => element(document.body, name, attributes, ...children);
const clamp = (value, least, most) => Math.min(Math.max(value, least), most);
const xOf = (at) => Math.round(((at - view.from) / (view.to - view.from)) * view.width * 10) / 10;
const isInView = (item) => item.end >= view.from && item.begin <= view.to;

function setPeriod(from, to) {
  const span = clamp(to - from, LEAST_SPAN_S, BOUNDS.to - BOUNDS.from);
  view.from = clamp((from + to - span) / 2, BOUNDS.from, BOUNDS.to - span);
  view.to = view.from + span;
  drawSoon();
}

function zoom(factor, share = 0.5) {
  const span = view.to - view.from;
  const at = view.from + share * span;
  setPeriod(at - share * span * factor, at + (1 - share) * span * factor);
}

function pan(share) {
  const by = (view.to - view.from) * share;
  setPeriod(view.from + by, view.to + by);
}

// The whole multiples of a step that are in view; weeks begin on Mondays, as 1970-01-05 did.
function ticks() {
  const least = ((view.to - view.from) * LEAST_TICK) / view.width;
  const step = STEPS.find((one) => one >= least) || STEPS[STEPS.length - 1];
  const shift = (step % (7 * DAY_S) ? 0 : 4 * DAY_S) - DATA.begin;
  const first = Math.ceil((view.from - shift) / step) * step + shift;
  const found = [];
  for (let at = first; at <= view.to; at += step) found.push(at);
  return { step, found };
}

function lines(height, top = 0) {
  const x = xOf(DATA.now);
  const grid = svg("path", { class: "grid", d: ticks().found.map((at) => `M${xOf(at)} ${top}V${height}`).join("") });
  return x < 0 || x > view.width ? [grid] : [grid, svg("path", { class: "now", d: `M${x} 0V${height}` })];
}

function drawAxis() {
  const { step, found } = ticks();
  const format = step < DAY_S
    ? { day: "numeric", month: "short", hour: "2-digit", minute: "2-digit" }
    : { day: "numeric", month: "short", year: "2-digit" };
  const spelled = new Intl.DateTimeFormat("en-GB", { timeZone: "UTC", ...format });
  // What would be cut off at the right edge is not named.
  const names = found.filter((at) => xOf(at) < view.width - LEAST_TICK)
    .map((at) => svg("text", { x: xOf(at) + 3, y: 14 }, spelled.format(new Date((DATA.begin + at) * 1000))));
  axis.setAttribute("viewBox", `0 0 ${view.width} 20`);
  axis.replaceChildren(...lines(20), ...names);
}

// ── lanes ───────────────────────────────────────────────────────────────────────────────────────────

const TRACK = 18;
const MARK_ROW = 14;
const LEAST_BAR = 3;
const CLUSTER = 6;
// Lines across a bar, and its height, so that how it ended reads without colour.
const HATCHES = { failed: ["/"], abnormal: ["/", "\\"], "terminated elsewhere": ["\\"] };
// What a group of bars is shown as: the first of these in it.
const WORST = ["failed", "abnormal", "terminated elsewhere", "unknown", "running", "terminating", "queued", "released", "terminated", "completed"];

class Lane {
  constructor(row, bars, marks, runs) {
    Object.assign(this, { row, bars, marks, runs, cell: row.querySelector(".lane"), button: row.querySelector(".key") });
    const tracks = bars.reduce((most, bar) => Math.max(most, bar.track + 1), 1);
    this.top = marks.length ? MARK_ROW : 3;
    this.height = this.top + (bars.length ? tracks * TRACK + 3 : TRACK + 3);
    this.svg = svg("svg", { height: this.height, "aria-hidden": "true" });
    this.cell.append(this.svg);
    this.isNear = row.getBoundingClientRect().top < innerHeight;
    this.button.addEventListener("click", () => this.toggle());
  }

  draw() {
    const shapes = [
      ...groups(this.bars, isOneBar).map((group) => barShape(group, this.top)),
      ...groups(this.marks, isOnePoint).map((group) => markShape(group, this.top / 2)),
      ...groups(this.runs, isOnePoint).map((group) => runShape(group, this.height / 2)),
    ];
    this.svg.setAttribute("viewBox", `0 0 ${view.width} ${this.height}`);
    this.svg.replaceChildren(...lines(this.height), ...shapes);
  }

  // List what the lane shows, newest first.
  toggle() {
    const isOpen = this.button.getAttribute("aria-expanded") === "true";
    this.button.setAttribute("aria-expanded", String(!isOpen));
    if (isOpen) {
      this.row.nextElementSibling.remove();
      return;
    }
    const cell = html("td", { colspan: 2 });
    Object.entries(LISTS).filter(([name]) => this[name].length).forEach(([name, heads]) => {
      const head = html("tr", {}, ...heads.map((one) => html("th", { scope: "col" }, one)));
      const newest = this[name].slice(-MOST_LISTED).reverse();
      const rows = newest.map((item) => html("tr", {}, ...item.cells().map((text) => html("td", {}, text))));
      cell.append(html("table", {}, html("thead", {}, head), html("tbody", {}, ...rows)));
      const more = this[name].length - newest.length;
      if (more) cell.append(html("p", { class: "dim" }, `and ${more} more, older ones`));
    });
    this.row.after(html("tr", { class: "detail" }, cell));
  }
}

const MOST_LISTED = 200;
const LISTS = {
  bars: ["Revision", "Phase", "Created", "Queued", "Ran", "Nodes", "Digest", "Created by"],
  marks: ["What", "When", "Detail"],
  runs: ["Run", "Result", "When", "By", "Outcome"],
};

// Of a track those in view, where what is too close to be told apart is one: of more revisions at one time than
// there are tracks, none hides another.
function groups(items, isOne) {
  const made = [];
  const last = new Map();
  items.filter(isInView).forEach((item) => {
    const [x1, x2] = [xOf(item.begin), Math.max(xOf(item.end), xOf(item.begin) + LEAST_BAR)];
    const group = last.get(item.track);
    if (group && isOne(group, item, x1, x2)) {
      group.items.push(item);
      group.x2 = Math.max(group.x2, x2);
      group.end = Math.max(group.end, item.end);
    } else {
      last.set(item.track, { items: [item], x1, x2, end: item.end, track: item.track });
      made.push(last.get(item.track));
    }
  });
  return made;
}

const isOneBar = (group, bar, x1, x2) => bar.begin < group.end - 2 || (x1 < group.x2 + 0.5 && x2 - group.x1 <= CLUSTER);
const isOnePoint = (group, point, x1) => x1 - group.x1 < 8;

function shape(css, { items }, ...children) {
  const about = items[0].kind === "bar" ? { "data-revision": items[0].number, "data-state": items[0].word } : {};
  const title = svg("title", {}, describe(items).join("\n"));
  return svg("g", { class: `item ${css}`, "data-kind": items[0].kind, "data-count": items.length, ...about }, title, ...children);
}

function barShape(group, top) {
  const { items } = group;
  const rank = ({ css }) => WORST.findIndex((one) => one.replaceAll(" ", "-") === css);
  const bar = items.reduce((worst, one) => (rank(one) < rank(worst) ? one : worst));
  const word = DATA.states.find(([, css]) => css === bar.css)[0];
  const middle = top + group.track * TRACK + TRACK / 2;
  const height = HATCHES[word] || word === "unknown" ? 14 : 10;
  const begin = Math.max(group.x1, -20);
  const queued = items.length === 1 ? Math.min(xOf(bar.begin + bar.queued), group.x2 - LEAST_BAR) : group.x1;
  const [x1, x2] = [Math.max(queued, -20), Math.min(group.x2, view.width + 20)];
  const width = Math.max(x2 - x1, 1);
  const y = middle - height / 2;
  const made = [];
  if (x1 > begin) made.push(svg("path", { class: "wait", d: `M${begin} ${middle - 4}V${middle + 4}M${begin} ${middle}H${x1}` }));
  made.push(svg("rect", { class: "body", x: x1, y, width, height, rx: Math.min(2, width / 3) }));
  if (width >= 7) (HATCHES[word] || []).forEach((slope) => made.push(svg("path", { class: "hatch", d: hatch(x1, y, width, height, slope) })));
  if (bar.isOpen && items.length === 1) made.push(svg("path", { class: "open", d: `M${x2} ${middle - 5}l5 5l-5 5Z` }));
  if (width >= 13) {
    const more = items.length === 1 ? `r${bar.number}` : `×${items.length}`;
    const text = width >= 42 ? `${bar.letter} ${more}` : bar.letter;
    const x = (Math.max(x1, 0) + Math.min(x2, view.width)) / 2;
    const half = text.length * 3 + 3;
    if (HATCHES[word]) made.push(svg("rect", { class: "plate", x: x - half, y, width: 2 * half, height }));
    made.push(svg("text", { x, y: middle + 3.6 }, text));
  }
  return shape(bar.css, group, ...made);
}

function hatch(x, y, width, height, slope) {
  let d = "";
  for (let at = -height; at < width; at += 6) {
    const [from, to] = [clamp(at, 0, width), clamp(at + height, 0, width)];
    const [a, b] = slope === "/" ? [height - from + at, height - to + at] : [from - at, to - at];
    d += `M${x + from} ${y + a}L${x + to} ${y + b}`;
  }
  return d;
}

const circle = (x, y, r) => `M${x - r} ${y}a${r} ${r} 0 1 0 ${2 * r} 0a${r} ${r} 0 1 0 ${-2 * r} 0Z`;
const diamond = (x, y, r) => `M${x} ${y - r}l${r} ${r}l${-r} ${r}l${-r} ${-r}Z`;
const square = (x, y, r) => `M${x - r} ${y - r}h${2 * r}v${2 * r}h${-2 * r}Z`;

// In squares what changed outside of an apply.
function markShape(group, y) {
  const { items, x1: x } = group;
  const first = ["outside", "failure", "ours"].map((look) => items.find((mark) => mark.look === look)).find(Boolean);
  const text = items.length > 1 ? String(Math.min(items.length, 99)) : first.letter;
  const d = (first.look === "outside" ? square : circle)(x, y, 6);
  return shape(first.look, group, svg("path", { class: "shape", d }), svg("text", { x, y: y + 3.4 }, text));
}

// A run is a dot if all went well, a diamond if there is something to know, a square if it went wrong.
function runShape(group, y) {
  const { items, x1: x } = group;
  const worst = items.reduce((found, run) => (run.rank > found.rank ? run : found));
  const d = [circle(x, y, 4), diamond(x, y, 7), square(x, y, 6)][worst.rank];
  const letter = ["", worst.word[0].toUpperCase(), "!"][worst.rank];
  return shape(DATA.ranks[worst.rank], group, svg("path", { class: "shape", d }), svg("text", { x, y: y + 3.6 }, letter));
}

// ── what a reader does ──────────────────────────────────────────────────────────────────────────────

const filter = document.getElementById("filter");
const shown = document.getElementById("shown");
const period = document.getElementById("period");
const presets = [...document.querySelectorAll("[data-days]")];
const PRINTED_WIDTH = 860;

document.documentElement.classList.remove("still");
const runLanes = [...document.querySelectorAll("[data-runs]")].map(
  (row) => new Lane(row, [], [], RUNS.filter((run) => run.isCheck === (row.dataset.runs === "checks"))));
const keyLanes = [...document.querySelectorAll("[data-key]")].map((row, place) => {
  const [bars, marks] = DATA.lanes[place];
  const { key } = row.dataset;
  return new Lane(row, bars.map((bar) => readBar(key, bar)), marks.map((mark) => readMark(key, mark)), []);
});
const lanes = [...runLanes, ...keyLanes];
const words = keyLanes.map((lane) => lane.row.textContent.toLowerCase());
let isDue = false;

function draw() {
  isDue = false;
  drawAxis();
  lanes.filter((lane) => lane.isNear && !lane.row.hidden).forEach((lane) => lane.draw());
  period.value = `${spellTime(view.from).slice(0, 16)} – ${spellTime(view.to).slice(0, 16)}`;
  const isWhole = (one) => Math.abs(view.to - view.from - one.dataset.days * DAY_S) < 1 && view.to >= DATA.now;
  presets.forEach((one) => one.setAttribute("aria-pressed", String(isWhole(one))));
}

function drawSoon() {
  if (!isDue) requestAnimationFrame(draw);
  isDue = true;
}

function applyFilter() {
  document.querySelectorAll(".detail").forEach((row) => row.remove());
  const wanted = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
  keyLanes.forEach((lane, place) => {
    lane.button.setAttribute("aria-expanded", "false");
    lane.row.hidden = !wanted.every((word) => words[place].includes(word));
  });
  const left = keyLanes.filter((lane) => !lane.row.hidden).length;
  shown.value = `${left} of ${keyLanes.length}`;
  document.getElementById("nothing").hidden = left > 0 || !keyLanes.length;
  drawSoon();
}

const KEYS = {
  "+": () => zoom(0.5), "=": () => zoom(0.5), "-": () => zoom(2), 0: () => setPeriod(BOUNDS.from, BOUNDS.to),
  "/": () => filter.focus(), "Shift+ArrowLeft": () => pan(-0.2), "Shift+ArrowRight": () => pan(0.2),
};

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const isTyping = document.activeElement === filter;
  const name = event.shiftKey && event.key.startsWith("Arrow") ? `Shift+${event.key}` : event.key;
  if (isTyping && event.key === "Escape") {
    filter.value = "";
    applyFilter();
  } else if (!isTyping && KEYS[name]) KEYS[name]();
  else return;
  event.preventDefault();
});

document.addEventListener("wheel", (event) => {
  const cell = event.target.closest(".lane, #axis");
  if (!cell) return;
  const sideways = event.shiftKey && !event.deltaX ? event.deltaY : event.deltaX;
  const box = cell.getBoundingClientRect();
  if (event.ctrlKey || event.metaKey || (!sideways && cell.id === "axis")) {
    zoom(1.0015 ** clamp(event.deltaY, -300, 300), (event.clientX - box.left) / box.width);
  } else if (sideways) pan(sideways / view.width);
  else return;
  event.preventDefault();
}, { passive: false });

let dragged = null;
document.addEventListener("pointerdown", (event) => {
  if (event.button === 0 && event.target.closest(".lane, #axis")) dragged = { x: event.clientX, ...view };
});
document.addEventListener("pointermove", (event) => {
  if (!dragged) return;
  const by = ((dragged.x - event.clientX) / view.width) * (dragged.to - dragged.from);
  setPeriod(dragged.from + by, dragged.to + by);
});
["pointerup", "pointercancel"].forEach((name) => document.addEventListener(name, () => { dragged = null; }));

document.getElementById("zoom-in").addEventListener("click", KEYS["+"]);
document.getElementById("zoom-out").addEventListener("click", KEYS["-"]);
document.getElementById("everything").addEventListener("click", KEYS[0]);
presets.forEach((one) => {
  const span = Number(one.dataset.days) * DAY_S;
  one.hidden = span >= BOUNDS.to - BOUNDS.from;
  one.addEventListener("click", () => setPeriod(DATA.now - span * (1 - PAD), DATA.now + span * PAD));
});
filter.addEventListener("input", applyFilter);

// Only what is near the window is drawn.
const near = new IntersectionObserver((entries) => {
  entries.forEach((entry) => { lanes.find((lane) => lane.row === entry.target).isNear = entry.isIntersecting; });
  drawSoon();
}, { rootMargin: "300px" });
lanes.forEach((lane) => near.observe(lane.row));

function measure() {
  view.width = Math.round(axis.parentElement.clientWidth) || view.width;
  drawSoon();
}

addEventListener("beforeprint", () => {
  view.width = PRINTED_WIDTH;
  lanes.forEach((lane) => { lane.isNear = true; });
  draw();
});
addEventListener("afterprint", () => {
  near.disconnect();
  lanes.forEach((lane) => near.observe(lane.row));
  measure();
});
new ResizeObserver(measure).observe(axis.parentElement);
if (BOUNDS.to - BOUNDS.from > 95 * DAY_S) presets[presets.length - 1].click();
measure();
applyFilter();
