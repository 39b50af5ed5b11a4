/* The mark of a model: a color and a shape, the same in every chart and table. */

import { svg } from "../core/dom.js";

// Polygons within a circle of radius 1, after the circle
const SHAPES = [
  null,
  "-.85,-.85 .85,-.85 .85,.85 -.85,.85",
  "0,-1.15 1.1,.8 -1.1,.8",
  "0,-1.25 1.25,0 0,1.25 -1.25,0",
  "0,1.15 1.1,-.8 -1.1,-.8",
  "-.4,-1.1 .4,-1.1 .4,-.4 1.1,-.4 1.1,.4 .4,.4 .4,1.1 -.4,1.1 -.4,.4 -1.1,.4 -1.1,-.4 -.4,-.4",
  "0,-1.2 1.1,-.35 .7,1 -.7,1 -1.1,-.35",
];

export function colorOf(mark) {
  return `var(--c${mark % 8})`;
}

/** The mark at a place of an SVG picture. */
export function marker(mark, x = 0, y = 0, radius = 5) {
  const shape = SHAPES[mark % SHAPES.length];
  const style = { fill: colorOf(mark) };
  if (!shape) return svg("circle", { class: "m", style, cx: x.toFixed(1), cy: y.toFixed(1), r: radius });
  const points = shape.split(" ").map((corner) => corner.split(",").map(Number));
  return svg("polygon", { class: "m", style, points: points.map(([a, b]) => `${(x + radius * a).toFixed(1)},${(y + radius * b).toFixed(1)}`).join(" ") });
}

/** The mark alone, to stand before a name. */
export function key(mark) {
  return svg("svg", { class: "key", viewBox: "-8 -8 16 16", "aria-hidden": "true" }, marker(mark, 0, 0, 6));
}

/** A value and its interval on the scale from `start` to `end`, for a cell of a table that has the numbers, too. */
export function interval({ value, low, high, start, end, mark }) {
  const at = (each) => 8 + 124 * (end > start ? Math.min(1, Math.max(0, (each - start) / (end - start))) : 0.5);
  const stroke = { stroke: colorOf(mark) };
  const line = (name, left, right, top, bottom, style = {}) => svg("line", { class: name, x1: left.toFixed(1), x2: right.toFixed(1), y1: top, y2: bottom, style });
  const hasRange = Number.isFinite(low) && Number.isFinite(high);
  return svg("svg", { class: "interval", viewBox: "0 0 140 18", "aria-hidden": "true" }, line("grid", 2, 138, 9, 9), hasRange && line("bar", at(low), at(high), 9, 9, stroke), line("value", at(value), at(value), 2, 16, stroke));
}
