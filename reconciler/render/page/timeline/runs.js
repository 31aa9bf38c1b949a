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
