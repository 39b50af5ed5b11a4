/* Elements without HTML strings: text is never parsed, so nothing that a model writes can become code. */

const SVG = "http://www.w3.org/2000/svg";

/** Create an HTML element: h("button", {class: "plain", onclick: run}, "Run").
 *
 *  Attributes: functions become listeners, true an empty attribute; null, undefined and false are left out. `dataset` and
 *  `style` take objects. Children: nodes, text, numbers, lists of these; null and false are left out. */
export function h(name, attributes = {}, ...children) {
  return fill(document.createElement(name), attributes, children);
}

/** Create an SVG element. */
export function svg(name, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, name), attributes, children);
}

/** Replace the children of an element. */
export function put(element, ...children) {
  element.replaceChildren(...flatten(children));
  return element;
}

/** Replace the children of an element, unless they are these already: what is put anew is laid out anew. */
export function keep(element, nodes) {
  if (nodes.length !== element.childNodes.length || nodes.some((node, i) => node !== element.childNodes[i])) element.replaceChildren(...nodes);
  return element;
}

/** Call a function when events have been quiet for so many milliseconds. */
export function debounce(milliseconds, call) {
  let timer;
  return (...values) => {
    clearTimeout(timer);
    timer = setTimeout(() => call(...values), milliseconds);
  };
}

/** Call a function at most once in so many milliseconds: at once, and again at the end if it was called meanwhile. */
export function throttle(milliseconds, call) {
  let timer = null;
  let isWanted = false;
  const end = () => {
    timer = null;
    if (isWanted) run();
  };
  const run = () => {
    isWanted = timer !== null;
    if (isWanted) return;
    timer = setTimeout(end, milliseconds);
    call();
  };
  return run;
}

let lastId = 0;

/** A new id, to connect a label with its field. */
export function newId(prefix = "id") {
  lastId += 1;
  return `${prefix}-${lastId}`;
}

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (typeof value === "function") element.addEventListener(name.replace(/^on/, ""), value);
    else if (name === "dataset") Object.assign(element.dataset, value);
    else if (name === "style") for (const [key, part] of Object.entries(value)) element.style.setProperty(key, part);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...flatten(children));
  return element;
}

function flatten(children) {
  return children
    .flat(Infinity)
    .filter((child) => child !== null && child !== undefined && child !== false)
    .map((child) => (child instanceof Node ? child : String(child)));
}
