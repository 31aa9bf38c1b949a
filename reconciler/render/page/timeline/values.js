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
