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
