import assert from "node:assert/strict";
import { test } from "node:test";

import { examplesFor } from "../../src/nextword/server/web/core/task-examples.js";
import { csv, examplesOf, formOf, requestOf, splitLabels } from "../../src/nextword/server/web/core/task-forms.js";

const model = (task, settings = {}) => ({ id: "m", task, data: "", taskSettings: task && { labels: ["a", "b"], is_pair: false, is_numeric: false, tasks: [], ...settings } });
const FIELDS = { text: "one\n\n two ", second: "s", question: "q?", choices: "x\ny", labels: "a, b", template: "It is {label}.", task: "", calibrate: true, many: false };
const ask = (task, settings, fields = {}) => requestOf(model(task, settings), formOf(model(task, settings), { ...FIELDS, ...fields }), { ...FIELDS, ...fields });

test("each kind of task has its form", () => {
  const kinds = { classification: "labels", regression: "labels", in_context: "labels", tagging: "tags", cross_view: "tags", question_answering: "answers", multiple_choice: "choices" };
  for (const [task, kind] of Object.entries(kinds)) assert.equal(formOf(model(task)).kind, kind);
  assert.equal(formOf(model("multiple_choice", { is_pair: true })).isPair, false);
  assert.equal(formOf(model("pair_classification", { is_pair: true })).isPair, true);
  assert.equal(formOf({ id: "m", task: "classification", taskSettings: null }).kind, "labels"); // of an older server
});

test("requests have what the routes want", () => {
  assert.deepEqual(ask("classification").body, { model: "m", examples: [FIELDS.text] });
  assert.deepEqual(ask("classification", {}, { many: true }).body.examples, ["one", "two"]);
  assert.deepEqual(ask("classification", { is_pair: true }).body.examples, [[FIELDS.text, "s"]]);
  assert.deepEqual(ask("tagging").body.sentences, ["one", "two"]);
  assert.deepEqual(ask("question_answering").body.questions, [{ question: "q?", context: FIELDS.text }]);
  assert.deepEqual(ask("multiple_choice").body.examples[0].choices, ["x", "y"]);
  assert.deepEqual(ask(null).body, { model: "m", examples: [FIELDS.text], labels: ["a", "b"], template: "It is {label}.", calibrate: true });
});

test("of several tasks, the chosen one is asked in its own form", () => {
  const tasks = [{ name: "x", labels: ["1"], is_pair: false }, { name: "y", labels: ["2", "3"], is_pair: true }];
  assert.equal(ask("multitask", { tasks }).body.task, "x");
  assert.deepEqual(ask("multitask", { tasks }, { task: "y" }).body, { model: "m", examples: [[FIELDS.text, "s"]], task: "y" });
});

test("nothing is asked before there is something to ask", () => {
  assert.equal(ask("classification", {}, { text: " \n" }), null);
  assert.equal(ask("classification", {}, { text: "", many: true }), null);
  assert.equal(ask("tagging", {}, { text: "" }), null);
  assert.equal(ask("question_answering", {}, { question: " " }), null);
  assert.equal(ask("multiple_choice", {}, { choices: "one" }), null);
  assert.equal(ask(null, {}, { labels: "one, one," }), null);
});

test("a line has the two texts of a pair", () => {
  const form = formOf(model("pair_classification", { is_pair: true }));
  assert.deepEqual(examplesOf(form, { text: "a\tb\nc", second: "d" }, true), [["a", "b"], ["c", "d"]]);
});

test("every form begins with an example that can be asked", () => {
  for (const each of [model(null), model("classification"), model("pair_classification", { is_pair: true }), model("tagging"), model("question_answering"), model("multiple_choice")]) {
    for (const { value } of examplesFor(each)) assert.ok(requestOf(each, formOf(each, value), { ...FIELDS, text: "", ...value }));
  }
});

test("labels are separated by commas of all scripts, each once", () => {
  assert.deepEqual(splitLabels(" war, 和平，爱、war,, "), ["war", "和平", "爱"]);
});

test("csv quotes what needs it", () => {
  assert.equal(csv([["a", 'say "x"'], ["b,c", "d\ne"], [1, ""]]), 'a,"say ""x"""\r\n"b,c","d\ne"\r\n1,\r\n');
});
