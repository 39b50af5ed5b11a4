/* The interface in English and Chinese. Each page has its texts in strings/PAGE.js: {en: {…}, zh: {…}}, with the same keys. */

import common from "../strings/common.js";

export const LANGUAGES = { en: "English", zh: "中文" };

let language = choose();
const tables = { common };

function choose() {
  const kept = recall("language");
  if (kept in LANGUAGES) return kept;
  return (globalThis.navigator?.language ?? "en").startsWith("zh") ? "zh" : "en";
}

export function currentLanguage() {
  return language;
}

/** Show the interface in another language from now on. The caller draws it anew. */
export function setLanguage(name) {
  language = name in LANGUAGES ? name : "en";
}

/** Add the texts of a page, under its name. */
export function addStrings(name, strings) {
  tables[name] = strings;
}

/** The text for "page.key" or, of the common table, "key". {name} in it stands for values.name. A missing key shows itself. */
export function t(key, values = {}) {
  const [page, rest] = key.includes(".") ? [key.slice(0, key.indexOf(".")), key.slice(key.indexOf(".") + 1)] : ["common", key];
  const text = tables[page]?.[language]?.[rest] ?? tables[page]?.en?.[rest] ?? tables.common[language][key] ?? key;
  return text.replace(/\{(\w+)\}/g, (whole, name) => (name in values ? values[name] : whole));
}

/** What stands between two sentences. */
export function space() {
  return language === "zh" ? "" : " ";
}

/** Keep a setting for the next visit; where the browser forbids it, for this visit only. */
export function remember(name, value) {
  try {
    localStorage.setItem(`nextword.${name}`, value);
  } catch {
    // no storage: the default holds
  }
}

export function recall(name) {
  try {
    return localStorage.getItem(`nextword.${name}`) ?? "";
  } catch {
    return "";
  }
}
