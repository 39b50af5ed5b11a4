/* A part to unfold, whose content is made when it is opened, and again when what it shows has changed. */

import { h, put } from "../core/dom.js";

/** An element <details> with `redraw()`. build() returns nodes. */
export function lazyDetails(summary, build) {
  const body = h("div", {});
  const details = h("details", { class: "more", ontoggle: () => details.redraw() }, h("summary", {}, summary), body);
  details.redraw = () => put(body, details.open ? build() : null);
  return details;
}
