/* What a reader has done to a part of the page survives drawing it anew: the keyboard's place, and opened details. */

const REACHABLE = "button, a[href], input, select, textarea, summary, [tabindex]";

/** Draw the content of an element anew. What had the focus has it again: the same data-keep, else the same position. */
export function redraw(container, draw) {
  const reachable = () => [...container.querySelectorAll(REACHABLE)];
  const details = () => [...container.querySelectorAll("details")];
  const focused = container.contains(document.activeElement) ? document.activeElement : null;
  const at = reachable().indexOf(focused);
  const open = details().map((each) => each.open);
  const result = draw();
  const now = details();
  if (now.length === open.length) now.forEach((each, i) => (each.open = open[i]));
  if (!focused || at < 0) return result;
  const { keep } = focused.dataset;
  const again = keep ? container.querySelector(`[data-keep="${keep}"]`) : reachable()[Math.min(at, reachable().length - 1)];
  again?.focus({ preventScroll: true });
  return result;
}
