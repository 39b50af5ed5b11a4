/* <nw-beam-tree>: a beam search as a drawing, one column a step, and as a nested list. In a column the best come first, and a
   line separates those that stay from those that are pruned. */

import { columnsOf } from "../core/beam-search.js";
import { h, put, svg } from "../core/dom.js";
import { t } from "../core/i18n.js";
import { fixed, percent } from "../core/numbers.js";
import { visible } from "../core/text.js";

const [WIDTH, HEIGHT] = [136, 38]; // of a node
const [ACROSS, DOWN] = [WIDTH + 56, HEIGHT + 10]; // from node to node
const CUT = 22; // room for the line between those that stay and the others
const LEFT = 74; // room for the beginning
const TOP = 22;

class BeamTree extends HTMLElement {
  /** nodes: of `withGreedy`; step: the last one to show; start: what the search continues; best: numbers of the nodes of the
   *  best candidate. */
  show({ nodes, step, start, best = [], label }) {
    const columns = columnsOf(nodes);
    const places = placesOf(nodes, columns);
    const shown = columns.slice(0, step + 1);
    const width = LEFT + columns.length * ACROSS - (ACROSS - WIDTH) + 2;
    const height = Math.max(TOP + DOWN, ...columns.flat().map((number) => places[number].y + HEIGHT)) + 4;
    const onBest = new Set(step === columns.length - 1 ? best : []);
    const edges = shown.flat().map((number) => edge(nodes[number], places, number, onBest.has(number)));
    const boxes = shown.flatMap((column, at) => column.map((number) => box(nodes[number], places[number], { isBest: onBest.has(number), isNew: at === step })));
    const lines = shown.map((column, at) => cutLine(nodes, column, places, at));
    const heads = columns.map((_, at) => svg("text", { class: "step", x: LEFT + at * ACROSS + WIDTH / 2, y: 12 }, t("beam.step", { step: at + 1 })));
    const root = svg("g", {}, svg("text", { class: "root", x: 0, y: TOP + HEIGHT / 2 + 4 }, shorten(start, 9)));
    const drawing = svg("svg", { class: "beam-drawing", viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": label }, heads, root, lines, edges, boxes);
    const scroll = this.querySelector(".scroll") ?? h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": t("beam.drawing") });
    put(scroll, drawing);
    const isOpen = this.querySelector("details")?.open ?? false;
    const list = h("details", { class: "more" }, h("summary", {}, t("beam.as-list")), h("div", { class: "beam-list" }, nested(nodes, null, step, onBest)));
    list.open = isOpen;
    if (scroll.isConnected) this.querySelector("details").replaceWith(list);
    else put(this, scroll, h("p", { class: "legend beam-legend" }, ["kept", "pruned", "complete", "open", "best"].map((state) => h("span", { class: `key-${state}` }, t(`beam.key-${state}`))), h("span", { class: "key-greedy" }, t("beam.key-greedy"))), list);
  }

  /** Scroll to a step, in the drawing alone; −1: the last one. */
  reveal(step) {
    const scroll = this.querySelector(".scroll");
    const right = step < 0 ? scroll.scrollWidth : LEFT + step * ACROSS + WIDTH;
    const isStill = window.matchMedia("(prefers-reduced-motion: reduce)").matches;
    if (right > scroll.scrollLeft + scroll.clientWidth || right - WIDTH < scroll.scrollLeft) scroll.scrollTo({ left: right - scroll.clientWidth + 12, behavior: isStill ? "instant" : "smooth" });
  }
}

/** Node → {x, y} of its upper left corner. */
function placesOf(nodes, columns) {
  const places = [];
  columns.forEach((column, step) => {
    let y = TOP;
    let before = null;
    for (const number of column) {
      const isOut = ["pruned", "greedy"].includes(nodes[number].state);
      if (isOut && before === false) y += CUT;
      places[number] = { x: LEFT + step * ACROSS, y };
      y += DOWN;
      before = isOut;
    }
  });
  return places;
}

function edge(node, places, number, isBest) {
  const from = node.parent === null ? { x: LEFT - WIDTH - 26, y: TOP } : places[node.parent];
  const [x1, y1, x2, y2] = [from.x + WIDTH, from.y + HEIGHT / 2, places[number].x, places[number].y + HEIGHT / 2];
  const middle = (x1 + x2) / 2;
  const path = (by) => `M${x1},${y1 + by} C${middle},${y1 + by} ${middle},${y2 + by} ${x2},${y2 + by}`;
  const own = svg("path", { class: `edge ${node.state}${isBest ? " best" : ""}`, d: path(0) });
  return node.isGreedy ? [own, svg("path", { class: "edge of-greedy", d: path(4) })] : own;
}

function box(node, { x, y }, { isBest, isNew }) {
  const word = shorten(visible(node.text.trim() || node.text), 12);
  const mark = `${node.isGreedy ? "◆ " : ""}${isBest ? "★ " : ""}`;
  return svg(
    "g",
    { class: `node ${node.state}${isBest ? " best" : ""}${node.isGreedy ? " on-greedy" : ""}${isNew ? " new" : ""}`, transform: `translate(${x},${y})` },
    svg("title", {}, describe(node)),
    svg("rect", { width: WIDTH, height: HEIGHT, rx: 7 }),
    svg("text", { class: "word", x: 9, y: 16 }, mark, word),
    svg("text", { class: "number", x: 9, y: 31 }, percent(Math.exp(node.log_prob), 0)),
    svg("text", { class: "number total", x: WIDTH - 9, y: 31 }, `Σ ${fixed(node.total)}`),
    node.state === "complete" ? svg("text", { class: "number total", x: WIDTH - 9, y: 16 }, "■") : node.state === "open" ? svg("text", { class: "number total", x: WIDTH - 9, y: 16 }, "…") : null,
  );
}

function cutLine(nodes, column, places, step) {
  const first = column.find((number) => nodes[number].state === "pruned");
  if (first === undefined || first === column[0]) return null;
  const y = places[first].y - (CUT + 10) / 2;
  return svg("g", { class: "cut" }, svg("line", { x1: LEFT + step * ACROSS, x2: LEFT + step * ACROSS + WIDTH, y1: y, y2: y }), svg("text", { x: LEFT + step * ACROSS + WIDTH, y: y - 4 }, "✂"));
}

/** The children of a node as a list; a node that was extended can be folded. */
function nested(nodes, parent, step, onBest) {
  const own = nodes.map((_, number) => number).filter((number) => nodes[number].parent === parent && nodes[number].step <= step);
  if (!own.length) return null;
  own.sort((one, other) => nodes[other].total - nodes[one].total);
  return h("ul", {}, own.map((number) => {
    const node = nodes[number];
    const text = [h("span", { class: `word ${node.state}`, dir: "auto" }, visible(node.text)), " ", h("span", { class: "note" }, describe(node, false), onBest.has(number) ? ` · ★ ${t("beam.key-best")}` : "")];
    const below = nested(nodes, number, step, onBest);
    const item = below ? h("details", {}, h("summary", {}, text), below) : text;
    if (below) item.open = true;
    return h("li", {}, item);
  }));
}

/** A node in words. */
function describe(node, hasWord = true) {
  const state = t(`beam.state-${node.state}`) + (node.isGreedy && node.state !== "greedy" ? ` · ◆ ${t("beam.state-greedy")}` : "");
  const numbers = t("beam.numbers", { p: percent(Math.exp(node.log_prob)), log: fixed(node.log_prob), total: fixed(node.total) });
  return `${hasWord ? `${visible(node.text)}: ` : ""}${numbers} · ${state}`;
}

function shorten(text, most) {
  const points = [...text];
  return points.length > most ? `${points.slice(0, most - 1).join("")}…` : text;
}

customElements.define("nw-beam-tree", BeamTree);
