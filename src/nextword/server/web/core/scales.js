/* Axes of charts: from values to pixels, round ticks, and places for labels. Pure functions, as in html/charts.py. */

const TIMES = [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 14400, 28800, 86400];

/** Maps the values from `low` to `high` to the pixels from `start` to `end`. */
export class Scale {
  constructor([low, high], start, end, isLog = false) {
    Object.assign(this, { low, high, start, end, isLog });
  }

  at(value) {
    const share = this.isLog ? Math.log(value / this.low) / Math.log(this.high / this.low) : (value - this.low) / (this.high - this.low);
    return this.start + share * (this.end - this.start);
  }
}

/** The range of an axis: that of the values, and a share `pad` of it more at both ends. */
export function domain(values, isLog = false, pad = 0) {
  let low = Infinity;
  let high = -Infinity;
  for (const value of values) {
    if (!Number.isFinite(value) || (isLog && value <= 0)) continue;
    low = Math.min(low, value);
    high = Math.max(high, value);
  }
  if (low > high) return isLog ? [1, 10] : [0, 1];
  if (high - low <= 1e-9 * Math.abs(high)) {
    if (isLog) return [low / 1.5, high * 1.5];
    const margin = Math.abs(low) / 5 || 1;
    return [low - margin, high + margin];
  }
  if (isLog) return [low / (high / low) ** pad, high * (high / low) ** pad];
  return [low - (high - low) * pad, high + (high - low) * pad];
}

/** Round numbers from low to high, in steps of 1, 2 or 5 times a power of ten: ticks(1.8, 3.1) is [2, 2.5, 3]. */
export function ticks(low, high, most = 6) {
  const raw = (high - low) / most;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((each) => each * power).find((each) => each >= raw * (1 - 1e-9));
  const values = multiples(low, high, step);
  return values.length > 1 ? values : ticks(low, high, most + 2); // a single tick shows no scale
}

/** The densest of 1–2–5, 1–3 and powers of ten that fits between low and high, which are positive. */
export function logTicks(low, high, most = 6) {
  let values = [];
  for (const digits of [[1, 2, 5], [1, 3], [1]]) {
    values = [];
    for (let power = Math.floor(Math.log10(low)); power <= Math.ceil(Math.log10(high)); power += 1) {
      for (const digit of digits) values.push(Number(`${digit}e${power}`));
    }
    values = values.filter((value) => value >= low * (1 - 1e-9) && value <= high * (1 + 1e-9));
    if (values.length <= most) break;
  }
  const stride = Math.ceil(values.length / most);
  return values.length > 2 ? values.filter((_, index) => index % stride === 0) : ticks(low, high, most);
}

/** Round seconds, minutes and hours from low to high. */
export function timeTicks(low, high, most = 6) {
  const step = TIMES.find((each) => each >= (high - low) / most) ?? TIMES.at(-1);
  return multiples(low, high, step);
}

/** A tick of a time axis: 0, 30 s, 2 min, 3:20 min, 4 h. */
export function timeLabel(seconds) {
  if (seconds === 0) return "0";
  if (seconds < 60 || (seconds < 120 && seconds !== 60)) return `${Number(seconds.toPrecision(3))} s`;
  const rest = Math.round(seconds % 60);
  if (seconds < 3600) return rest % 60 ? `${Math.floor(seconds / 60)}:${String(rest).padStart(2, "0")} min` : `${Math.round(seconds / 60)} min`;
  return `${Number((seconds / 3600).toPrecision(3))} h`;
}

/** The heights nearest to the wanted ones at which labels are `gap` apart, in the same order. */
export function spread(wanted, gap, top, bottom) {
  const order = wanted.map((_, index) => index).sort((a, b) => wanted[a] - wanted[b]);
  const space = Math.min(gap, (bottom - top) / Math.max(1, wanted.length - 1));
  const heights = [];
  for (const index of order) heights.push(Math.max(wanted[index], heights.length ? heights.at(-1) + space : top));
  let limit = bottom;
  for (let rank = heights.length - 1; rank >= 0; rank -= 1) {
    heights[rank] = Math.min(heights[rank], limit);
    limit = heights[rank] - space;
  }
  const result = [];
  order.forEach((index, rank) => (result[index] = heights[rank]));
  return result;
}

/** About `most` of the points, evenly; the first and the last stay. */
export function thin(points, most) {
  if (points.length <= most) return points;
  const stride = (points.length - 1) / (most - 1);
  return Array.from({ length: most }, (_, index) => points[Math.round(index * stride)]);
}

/** The index of the point whose x is nearest to a value; points are in order of x. */
export function nearestIndex(points, x) {
  let low = 0;
  let high = points.length - 1;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (points[middle].x <= x) low = middle;
    else high = middle;
  }
  return points.length > 1 && Math.abs(points[high].x - x) < Math.abs(points[low].x - x) ? high : low;
}

/** The place beside a point where a label covers least: {x, y} of its left upper corner. `taken` are boxes. */
export function placeLabel(x, y, width, height, taken, inside) {
  const places = [
    [x + 9, y - height / 2],
    [x - 9 - width, y - height / 2],
    [x - width / 2, y - 8 - height],
    [x - width / 2, y + 8],
    [x + 7, y - 5 - height],
    [x + 7, y + 5],
    [x - 7 - width, y - 5 - height],
    [x - 7 - width, y + 5],
  ];
  let best = null;
  for (const [left, top] of places) {
    const box = [left, top, left + width, top + height];
    let cost = 3 * (width * height - overlap(box, inside));
    for (const other of taken) cost += overlap(box, other);
    if (!best || cost < best.cost) best = { box, cost };
    if (cost < 1e-9) break;
  }
  return best;
}

function overlap(a, b) {
  return Math.max(0, Math.min(a[2], b[2]) - Math.max(a[0], b[0])) * Math.max(0, Math.min(a[3], b[3]) - Math.max(a[1], b[1]));
}

function multiples(low, high, step) {
  const values = [];
  for (let index = Math.ceil(low / step - 1e-9); index <= Math.floor(high / step + 1e-9); index += 1) values.push(Number((index * step).toPrecision(12)));
  return values;
}
