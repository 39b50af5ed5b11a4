/* The frame around the pages: navigation, language, and the page that the URL names. */

import "./components/notice.js";
import "./components/toolbar.js";
import { ApiError, forgetAnswers, get, isSaved, savedView, setKey } from "./core/api.js";
import * as address from "./core/address.js";
import { h, put, throttle } from "./core/dom.js";
import { LANGUAGES, addStrings, currentLanguage, remember, setLanguage, t } from "./core/i18n.js";
import { allModels, loadModels } from "./core/models.js";

// id → its modules, loaded when the page is opened
const PAGES = {
  type: () => Promise.all([import("./pages/type.js"), import("./strings/type.js")]),
  read: () => Promise.all([import("./pages/read.js"), import("./strings/read.js")]),
  write: () => Promise.all([import("./pages/write.js"), import("./strings/write.js")]),
  fill: () => Promise.all([import("./pages/fill.js"), import("./strings/fill.js")]),
  tokens: () => Promise.all([import("./pages/tokens.js"), import("./strings/tokens.js")]),
  beam: () => Promise.all([import("./pages/beam.js"), import("./strings/beam.js")]),
  translate: () => Promise.all([import("./pages/translate.js"), import("./strings/translate.js")]),
  tasks: () => Promise.all([import("./pages/tasks.js"), import("./strings/tasks.js")]),
  inside: () => Promise.all([import("./pages/inside.js"), import("./strings/inside.js")]),
  vectors: () => Promise.all([import("./pages/vectors.js"), import("./strings/vectors.js")]),
  compare: () => Promise.all([import("./pages/compare.js"), import("./strings/compare.js")]),
  train: () => Promise.all([import("./pages/train.js"), import("./strings/train.js")]),
};
const GROUPS = { predict: ["type", "write", "fill", "translate"], look: ["read", "tokens", "inside", "beam", "vectors"], use: ["tasks", "compare", "train"] };

const WRITE_MS = 200; // between two writes of the URL: browsers refuse to change it with every key

let current = null; // the page that is shown
let frame = {};
let writer = null; // the page whose state is in the URL; none while another one is opened
let turn = 0; // counts the pages that were opened

start();

async function start() {
  if (isSaved) setLanguage(savedView().language);
  drawFrame();
  window.addEventListener("hashchange", show);
  await connect();
}

/** Read the list of models and open the page; ask for the key if the server wants one. */
async function connect() {
  try {
    await loadModels();
  } catch (error) {
    if (error.status === 401) askForKey();
    else showFailure(error, connect);
    return;
  }
  await show();
}

/** Open the page that the URL names. A module that could not be read is read again only after a reload. */
async function show() {
  try {
    await open();
  } catch (error) {
    if (!(error instanceof ApiError)) console.error(error);
    showFailure(error, () => location.reload());
  }
}

function drawFrame() {
  document.documentElement.lang = currentLanguage() === "zh" ? "zh-Hans" : "en";
  const languages = h(
    "select",
    {
      "aria-label": t("language"),
      onchange: (event) => {
        setLanguage(event.target.value);
        remember("language", event.target.value);
        drawFrame();
        frame.languages.focus();
        current = null;
        show();
      },
    },
    Object.entries(LANGUAGES).map(([code, name]) => h("option", { value: code, lang: code }, name)),
  );
  languages.value = currentLanguage();
  const links = Object.entries(GROUPS).map(([group, ids]) => h("div", { class: "group", role: "group", "aria-label": t(`group:${group}`) }, h("span", { "aria-hidden": "true" }, t(`group:${group}`)), ids.map((id) => h("a", { href: `#/${id}`, dataset: { page: id } }, t(`page:${id}`)))));
  const nav = h("nav", { id: "pages", "aria-label": t("pages") }, links);
  const menu = h("button", { class: "menu", type: "button", "aria-expanded": "false", "aria-controls": "pages", onclick: () => toggleMenu() }, t("menu"));
  nav.addEventListener("click", (event) => event.target.closest("a") && toggleMenu(false));
  frame = { nav, menu, languages, main: h("main", { id: "main", tabindex: "-1" }) };
  const top = h("header", { class: "top" }, h("a", { class: "brand", href: "#/" }, "nextword"), isSaved ? h("p", { class: "note" }, t("saved-view", { date: savedView().date })) : [menu, nav], isSaved ? null : languages);
  const skip = h("a", { class: "skip", href: "#main", onclick: (event) => { event.preventDefault(); frame.main.focus(); } }, t("skip"));
  put(document.getElementById("app"), skip, top, frame.main, isSaved ? null : h("footer", { class: "bottom" }, h("p", {}, t("local"), " ", h("a", { href: "/docs" }, t("reference")))));
}

function toggleMenu(isOpen = frame.menu.getAttribute("aria-expanded") !== "true") {
  frame.menu.setAttribute("aria-expanded", String(isOpen));
  frame.nav.classList.toggle("open", isOpen);
}

/** Show the page that the URL names, with its state. */
async function open() {
  const fragment = isSaved ? savedView().fragment : location.hash;
  const wanted = /^#?\/?([\w-]+)/.exec(fragment)?.[1] ?? "";
  const id = Object.hasOwn(PAGES, wanted) ? wanted : allModels().length ? "type" : "train";
  turn += 1;
  const mine = turn;
  writer = null;
  const [{ default: Kind }, { default: strings }] = await PAGES[id]().catch(explainImport);
  if (mine !== turn) return; // somebody was faster than the network
  Kind.id = id;
  addStrings(id, strings);
  const { state } = address.parse(wanted === id ? fragment : `#/${id}`, () => Kind.defaults);
  if (history.state?.page === id) Object.assign(state, history.state.state);
  if (current?.constructor === Kind && current.isConnected) {
    writer = current;
    await current.restore(state);
    return;
  }
  if (!customElements.get(`nw-page-${id}`)) customElements.define(`nw-page-${id}`, Kind);
  forgetAnswers();
  const page = document.createElement(`nw-page-${id}`);
  const toolbar = document.createElement("nw-toolbar");
  page.onState = throttle(WRITE_MS, () => {
    if (writer !== page) return;
    const { fragment: short, isCut } = address.format(id, page.state, Kind.defaults);
    history.replaceState(isCut ? { page: id, state: page.state } : null, "", short); // a long text stays in this tab
  });
  const heading = h("h1", {}, t(`${id}.title`));
  put(frame.main, h("article", { class: `page ${id}` }, h("div", { class: "head" }, heading, h("p", { class: "lede" }, t(`${id}.intro`))), page, toolbar));
  toolbar.show(page, (most) => address.format(id, page.state, Kind.defaults, most));
  document.title = `${t(`page:${id}`)} · nextword`;
  for (const link of frame.nav.querySelectorAll("a")) {
    if (link.dataset.page === id) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  if (current) frame.main.focus({ preventScroll: true }); // not on the first page, whose reader has not moved
  current = page;
  writer = page;
  window.scrollTo(0, 0);
  await page.begin(state);
}

/** A module that cannot be read: the server is gone, or the module is broken. */
async function explainImport(error) {
  if (!(error instanceof TypeError)) throw error;
  await get("/health"); // throws if the server is gone
  throw error;
}

let isKeyWrong = false;

function askForKey() {
  const input = h("input", { type: "password", autocomplete: "off", id: "key", required: true, pattern: "[!-~]+", "aria-describedby": "key-note" });
  const use = async (event) => {
    event.preventDefault();
    setKey(input.value);
    isKeyWrong = true; // if we come here again
    await connect();
  };
  put(frame.main, h("form", { class: "page", onsubmit: use }, h("h1", {}, t("key:title")), h("p", {}, h("label", { for: "key" }, t("key:label"))), h("p", {}, input, " ", h("button", { type: "submit" }, t("key:use"))), h("p", { id: "key-note", role: "status" }, isKeyWrong ? t("key:wrong") : null)));
  input.focus();
}

function showFailure(error, again) {
  const notice = document.createElement("nw-notice");
  put(frame.main, h("div", { class: "page" }, notice));
  notice.fail(error, again);
}
