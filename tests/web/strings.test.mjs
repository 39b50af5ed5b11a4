import assert from "node:assert/strict";
import { existsSync, readFileSync, readdirSync } from "node:fs";
import { test } from "node:test";

import { addStrings, setLanguage, t } from "../../src/nextword/server/web/core/i18n.js";
import common from "../../src/nextword/server/web/strings/common.js";

const WEB = new URL("../../src/nextword/server/web/", import.meta.url);
const tables = {};
for (const file of readdirSync(new URL("strings/", WEB))) tables[file.replace(".js", "")] = (await import(new URL(`strings/${file}`, WEB))).default;
const placeholders = (text) => [...text.matchAll(/\{\w+\}/g)].map(([name]) => name).sort();

for (const [name, table] of Object.entries(tables)) {
  test(`${name}: English and Chinese have the same texts`, () => {
    assert.deepEqual(Object.keys(table.zh).sort(), Object.keys(table.en).sort());
    for (const [key, text] of Object.entries(table.en)) {
      assert.ok(text && table.zh[key], key);
      assert.deepEqual([...new Set(placeholders(table.zh[key]))], [...new Set(placeholders(text))], key);
    }
  });

  test(`${name}: the English texts are English, and the Chinese ones Chinese`, () => {
    for (const [key, text] of Object.entries(table.en)) assert.doesNotMatch(text, /[\u4e00-\u9fff]/, key);
    for (const [key, text] of Object.entries(table.zh)) if (!key.includes("example") && /[a-z]+ [a-z]+ [a-z]+/.test(text)) assert.match(text, /[\u4e00-\u9fff]/, key);
  });

  test(`${name}: a page has a title, an introduction and a name in the navigation`, { skip: !existsSync(new URL(`pages/${name}.js`, WEB)) }, () => {
    assert.ok(table.en.title && table.en.intro && common.en[`page:${name}`]);
  });
}

test("all texts that the modules name exist", () => {
  for (const folder of ["", "core/", "components/", "pages/"]) {
    for (const file of readdirSync(new URL(folder, WEB)).filter((name) => name.endsWith(".js"))) {
      const source = readFileSync(new URL(folder + file, WEB), "utf8");
      const page = file.replace(".js", "");
      for (const [, own, key] of source.matchAll(/(\bthis\.)?\bt\("([^"]+)"/g)) {
        const [table, name] = own && folder === "pages/" ? [page, key] : key.includes(".") ? key.split(/\.(.*)/) : ["common", key];
        assert.ok(name in (tables[table]?.en ?? {}), `${folder}${file} names ${key}`);
      }
    }
  }
});

test("values take their places, in the language of the interface", () => {
  addStrings("test", { en: { greet: "Hello {name}, {name}! {other}" }, zh: { greet: "{name}，你好！" } });
  setLanguage("en");
  assert.equal(t("test.greet", { name: "$& <b>" }), "Hello $& <b>, $& <b>! {other}");
  setLanguage("zh");
  assert.equal(t("test.greet", { name: 7 }), "7，你好！");
  assert.equal(t("cancel"), "取消");
  setLanguage("klingon");
  assert.equal(t("cancel"), "Cancel");
  assert.equal(t("no-such-key"), "no-such-key");
});
