/* Numbers as people read them. */

const MINUS = "\u2212";

/** With so many digits behind the point; infinity for what JSON wrote as null. */
export function fixed(value, digits = 2) {
  if (value === null || value === undefined) return "∞";
  return value.toFixed(digits).replace("-", MINUS);
}

/** A probability: 46.2 %, 0.031 %, or <0.001 %. */
export function percent(probability, digits = 1) {
  const value = 100 * probability;
  if (value === 0 || value >= 1) return `${value.toFixed(digits)} %`;
  return value < 0.001 ? "<0.001 %" : `${value.toPrecision(2)} %`;
}

/** A count: 1,234 or 4.68 M. */
export function count(value) {
  if (value === null || value === undefined) return "–";
  if (Math.abs(value) < 1e5) return value.toLocaleString("en");
  const rounded = Number(value.toPrecision(3)); // 999,999 is 1 M, not 1000 k
  const [size, letter] = [[1e9, "G"], [1e6, "M"], [1e3, "k"]].find(([least]) => Math.abs(rounded) >= least);
  return `${Number((rounded / size).toPrecision(3))} ${letter}`;
}

/** Seconds: 0.8 s, 43 s, 4 min 10 s, 2 h 5 min. */
export function duration(seconds) {
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  const whole = Math.round(seconds);
  const minutes = Math.floor(whole / 60);
  if (minutes < 1) return `${whole} s`;
  if (minutes < 60) return `${minutes} min ${whole % 60} s`;
  return `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}
