/* <nw-line-chart>: lines over time or steps, with their names at the ends, and a readout under the pointer or the keys.

   Marks (color and shape) tell the series apart; the same numbers are in a table below. */

import { h, newId, put, svg } from "../core/dom.js";
import { t } from "../core/i18n.js";
import { Scale, domain, logTicks, nearestIndex, spread, thin, ticks, timeLabel, timeTicks } from "../core/scales.js";
import { Chart } from "./chart.js";
import { colorOf, key, marker } from "./marks.js";

const TOP = 30;
const BOTTOM = 40;
const LINE = 16; // height of a label
const DRAWN = 240; // points of a line
const MARKED = 8; // of these with a mark
const LISTED = 12; // rows of the table for each series

class LineChart extends Chart {
  #place = null; // x where the readout is

  /** series: [{name, mark, points: [{x, y}] by x, isSoft?: thin and without marks, level?: y of a horizontal line}]
   *  x, y: {label, log?, time?, write?(value)}; title: what the chart shows, for screen readers. */
  show({ series, x, y, title, height = 320 }) {
    const fits = (point) => Number.isFinite(point.x) && Number.isFinite(point.y) && !(x.log && point.x <= 0) && !(y.log && point.y <= 0);
    const drawable = series.map((each) => ({ ...each, points: each.points.filter(fits) })).filter((each) => each.points.length || Number.isFinite(each.level));
    this.content = { series: drawable, x, y, title, height };
    if (!this.figure) this.#build();
    this.hidden = !drawable.length;
    this.redraw();
    if (this.twin.open) this.#fillTable();
  }

  #build() {
    const id = newId("chart");
    this.picture = svg("svg", { class: "plot", "aria-hidden": "true" });
    this.surface = h("div", { class: "surface", role: "slider", tabindex: "0", "aria-describedby": id, onpointermove: (event) => this.#point(event), onpointerleave: () => this.#read(null), onkeydown: (event) => this.#step(event), onblur: () => this.#read(null) }, this.picture);
    this.readout = h("p", { class: "readout", id });
    this.twin = h("details", { class: "more", ontoggle: () => this.twin.open && this.#fillTable() }, h("summary", {}, t("chart-table")));
    this.figure = h("figure", {}, this.surface, this.readout, this.twin);
    put(this, this.figure);
  }

  draw() {
    const { series, x, y, title, height } = this.content;
    const width = Math.floor(this.surface?.clientWidth ?? 0);
    if (!width || !series.length) return;
    const write = y.write ?? String;
    const names = series.map((each) => (each.name.length > 18 ? `${each.name.slice(0, 17)}…` : each.name));
    const isNarrow = width < 480;
    const labelWidth = 16 + 7.6 * Math.max(...names.map((name) => [...name].reduce((sum, letter) => sum + (letter > "\u2e80" ? 1.8 : 1), 0)));
    const xs = series.flatMap((each) => each.points.map((point) => point.x));
    const heights = series.flatMap((each) => [...each.points.map((point) => point.y), each.level].filter(Number.isFinite));
    const yDomain = domain(heights, y.log, 0.06);
    const yTicks = (y.log ? logTicks : ticks)(...yDomain, 6);
    const left = 12 + 7.4 * Math.max(...yTicks.map((tick) => write(tick).length));
    const across = new Scale(x.log ? domain(xs, true) : [0, Math.max(...xs, x.end ?? 0) || 1], left, width - (isNarrow ? Math.min(labelWidth, 88) : labelWidth), x.log);
    const down = new Scale(yDomain, height - BOTTOM, TOP, y.log);
    this.scales = { across, down };

    const nodes = [svg("text", { class: "axis", x: 0, y: 13 }, y.label), svg("text", { class: "axis", x: across.end, y: height - 4, "text-anchor": "end" }, x.label)];
    for (const tick of yTicks) {
      const at = down.at(tick).toFixed(1);
      nodes.push(svg("line", { class: "grid", x1: left, x2: across.end, y1: at, y2: at }), svg("text", { x: left - 7, y: Number(at) + 4.5, "text-anchor": "end" }, write(tick)));
    }
    nodes.push(svg("line", { class: "base", x1: left, x2: across.end, y1: down.start, y2: down.start }));
    for (const tick of (x.log ? logTicks : x.time ? timeTicks : ticks)(across.low, across.high, Math.max(2, (across.end - left) / 80))) {
      const at = across.at(tick).toFixed(1);
      nodes.push(svg("line", { class: "base", x1: at, x2: at, y1: down.start, y2: down.start + 5 }), svg("text", { x: at, y: down.start + 19, "text-anchor": "middle" }, x.time ? timeLabel(tick) : (x.write ?? String)(tick)));
    }
    for (const each of [...series].reverse()) nodes.push(...this.#line(each, across, down));
    const ends = series.map((each) => down.at(each.points.at(-1)?.y ?? each.level));
    const places = spread(ends, LINE, TOP, down.start);
    series.forEach((each, index) => {
      const end = each.points.length ? across.at(each.points.at(-1).x) : across.end;
      nodes.push(svg("polyline", { class: "lead", points: `${(end + 5).toFixed(1)},${ends[index].toFixed(1)} ${across.end + 9},${places[index].toFixed(1)}` }), svg("text", { class: each.isSoft ? "" : "name", x: across.end + 12, y: (places[index] + 4.5).toFixed(1) }, names[index]));
    });
    this.cursor = svg("g", {});
    put(this.picture, nodes, this.cursor);
    this.picture.setAttribute("viewBox", `0 0 ${width} ${height}`);
    this.picture.setAttribute("height", height);
    const surface = this.surface;
    surface.setAttribute("aria-label", title);
    surface.setAttribute("aria-valuemin", across.low);
    surface.setAttribute("aria-valuemax", across.high);
    this.#read(this.#place);
  }

  #line(each, across, down) {
    const stroke = { stroke: colorOf(each.mark) };
    if (!each.points.length) {
      const at = down.at(each.level).toFixed(1);
      return [svg("line", { class: "line level", style: stroke, x1: across.start, x2: across.end, y1: at, y2: at }), marker(each.mark, across.end, Number(at), 4.5)];
    }
    const path = thin(each.points, DRAWN).map((point) => `${across.at(point.x).toFixed(1)},${down.at(point.y).toFixed(1)}`).join(" ");
    const marks = each.isSoft ? [each.points.at(-1)] : thin(each.points, MARKED);
    return [svg("polyline", { class: each.isSoft ? "line soft" : "line", style: stroke, points: path }), ...marks.map((point) => marker(each.mark, across.at(point.x), down.at(point.y), each.isSoft ? 3 : 4.5))];
  }

  #point(event) {
    const { across } = this.scales ?? {};
    if (!across) return;
    const share = (event.clientX - this.surface.getBoundingClientRect().left - across.start) / (across.end - across.start);
    const within = Math.min(1, Math.max(0, share));
    this.#read(across.isLog ? across.low * (across.high / across.low) ** within : across.low + within * (across.high - across.low));
  }

  /** Arrow keys go from point to point of the longest line. */
  #step(event) {
    const points = this.content.series.reduce((most, each) => (each.points.length > most.length ? each.points : most), []);
    const stops = thin(points, DRAWN);
    if (!stops.length) return;
    const now = this.#place === null ? stops.length - 1 : nearestIndex(stops, this.#place);
    const to = { ArrowLeft: now - 1, ArrowDown: now - 1, ArrowRight: now + 1, ArrowUp: now + 1, PageUp: now + 10, PageDown: now - 10, Home: 0, End: stops.length - 1 }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    this.#read(stops[Math.min(stops.length - 1, Math.max(0, to))].x);
  }

  /** Show the values at a place; null: the last values. */
  #read(place) {
    this.#place = place;
    if (!this.cursor) return;
    const { series, x, y } = this.content;
    const { across, down } = this.scales;
    const write = y.write ?? String;
    const values = series.map((each) => {
      if (!each.points.length) return { each, value: each.level };
      const point = place === null ? each.points.at(-1) : each.points[nearestIndex(each.points, place)];
      const isBeyond = place !== null && place > each.points.at(-1).x + (across.high - across.low) / 50;
      return { each, point, value: isBeyond ? null : point.y };
    });
    const at = place === null ? null : across.at(place).toFixed(1);
    put(this.cursor, at && svg("line", { class: "cursor", x1: at, x2: at, y1: TOP, y2: down.start }), at && values.filter(({ point, value }) => point && value !== null).map(({ each, point }) => marker(each.mark, across.at(point.x), down.at(point.y), 6)));
    const name = place === null ? t("chart-last") : x.time ? timeLabel(Number(place.toPrecision(3))) : (x.write ?? String)(Math.round(place));
    const said = values.filter(({ value }) => value !== null && value !== undefined);
    put(this.readout, h("span", { class: "place" }, name), said.map(({ each, value }) => h("span", {}, key(each.mark), `${each.name} `, h("b", {}, write(value)))));
    this.surface.setAttribute("aria-valuenow", place ?? across.high);
    this.surface.setAttribute("aria-valuetext", `${name}: ${said.map(({ each, value }) => `${each.name} ${write(value)}`).join(", ")}`);
  }

  #fillTable() {
    const { series, x, y, title } = this.content;
    const write = y.write ?? String;
    const place = (value) => (x.time ? timeLabel(Number(value.toPrecision(3))) : (x.write ?? String)(value));
    const rows = series.flatMap((each) => (each.points.length ? thin(each.points, LISTED).map((point) => [each.name, place(point.x), write(point.y)]) : [[each.name, "–", write(each.level)]]));
    const table = h("table", {}, h("caption", {}, title), h("thead", {}, h("tr", {}, [t("model"), x.label, y.label].map((name, index) => h("th", { scope: "col", class: index ? "n" : "" }, name)))), h("tbody", {}, rows.map(([name, ...cells]) => h("tr", {}, h("th", { scope: "row" }, name), cells.map((cell) => h("td", { class: "n" }, cell))))));
    put(this.twin, this.twin.firstElementChild, h("div", { class: "scroll twin", tabindex: "0", role: "region", "aria-label": title }, table));
  }
}

customElements.define("nw-line-chart", LineChart);
