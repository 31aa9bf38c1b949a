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
