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
