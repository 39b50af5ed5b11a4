/* What a form for a model asks, and the requests that answer it. A fine-tuned run has its task; any language model, and any
   model of vectors, chooses among labels that are given. */

import { quotePython, quoteShell } from "./commands.js";

const KINDS = { tagging: "tags", cross_view: "tags", question_answering: "answers", multiple_choice: "choices" };
const EXPLAINED = ["classification", "pair_classification", "regression", "label_text"]; // tasks whose words have attributions
export const TEMPLATE = "This text is about {label}.";
const MOST_EXAMPLES = 512;
const MOST_SCORED = 2048; // texts × labels of a prompted model

/** {kind: labels | tags | answers | choices, isZeroShot, isPair, isNumeric, isExplained, labels, tasks}. */
export function formOf(model, { task = "", template = "", labels = "" } = {}) {
  const settings = model.taskSettings ?? {};
  if (!model.task) {
    return { kind: "labels", isZeroShot: true, isPair: template.includes("{second}"), isNumeric: false, isExplained: false, labels: splitLabels(labels), tasks: [] };
  }
  const tasks = settings.tasks ?? [];
  const part = tasks.find((each) => each.name === task) ?? tasks[0] ?? settings;
  const kind = KINDS[model.task] ?? "labels";
  return {
    kind,
    isZeroShot: false,
    isPair: kind === "labels" && (part.is_pair ?? model.task === "pair_classification"),
    isNumeric: part.is_numeric ?? model.task === "regression",
    isExplained: EXPLAINED.includes(model.task),
    labels: part.labels ?? [],
    tasks: tasks.map((each) => each.name),
  };
}

/** "a, b" → ["a", "b"], each once. */
export function splitLabels(text) {
  return [...new Set(text.split(/[,，、\n]/).map((label) => label.trim()).filter(Boolean))];
}

/** The lines of a text that are not empty. */
export function lines(text) {
  return text.split("\n").map((line) => line.trim()).filter(Boolean);
}

/** Examples of several texts, one a line; a tab separates the two of a pair. */
export function examplesOf(form, { text, second }, many) {
  if (!many) return [form.isPair ? [text, second] : text];
  const most = form.isZeroShot ? Math.floor(MOST_SCORED / Math.max(form.labels.length, 1)) : MOST_EXAMPLES;
  return lines(text).slice(0, Math.min(most, MOST_EXAMPLES)).map((line) => (form.isPair ? [line.split("\t")[0], line.split("\t")[1] ?? second] : line));
}

/** {path, body, python, cli} for the fields of a form, or null if there is nothing to ask yet. */
export function requestOf(model, form, fields) {
  const run = `RUNS/${model.id}`;
  const load = `nextword.load(${quotePython(run)})`;
  const predict = `nextword predict ${quoteShell(run)}`;
  if (form.kind === "tags") {
    const sentences = lines(fields.text).slice(0, MOST_EXAMPLES);
    if (!sentences.length) return null;
    return { path: "/api/tag", body: { model: model.id, sentences }, python: `${load}.predict([${sentences.map(quotePython).join(", ")}])`, cli: `printf '%s\\n' ${sentences.map(quoteShell).join(" ")} | ${predict}` };
  }
  if (form.kind === "answers") {
    const { text: context, question } = fields;
    if (!context.trim() || !question.trim()) return null;
    return { path: "/api/answer", body: { model: model.id, questions: [{ question, context }] }, python: `${load}.predict([(${quotePython(question)}, ${quotePython(context)})])` };
  }
  if (form.kind === "choices") {
    const { text: context, question } = fields;
    const choices = lines(fields.choices).slice(0, 64);
    if (!context.trim() || choices.length < 2) return null;
    return { path: "/api/choose", body: { model: model.id, examples: [{ context, question, choices }] }, python: `${load}.predict([(${quotePython(context)}, ${quotePython(question)}, [${choices.map(quotePython).join(", ")}])])` };
  }
  const examples = examplesOf(form, fields, fields.many);
  if (!examples.length || (form.isZeroShot && form.labels.length < 2) || !examples.flat().some((text) => text.trim())) return null;
  const body = { model: model.id, examples };
  const texts = examples.map((each) => (form.isPair ? `(${each.map(quotePython).join(", ")})` : quotePython(each))).join(", ");
  const printed = `printf '%s\\n' ${examples.map((each) => quoteShell([each].flat().join("\t"))).join(" ")} | ${predict}`;
  if (form.isZeroShot) {
    Object.assign(body, { labels: form.labels, template: fields.template, calibrate: fields.calibrate });
    const labels = form.labels.map(quotePython).join(", ");
    const python = `from nextword.tasks.in_context import zero_shot_class\nlm = ${load}\nzero_shot_class(lm)(lm, [${labels}], ${quotePython(fields.template)}, ${fields.calibrate ? "True" : "False"}).predict([${texts}])`;
    return { path: "/api/predict", body, python, cli: `${printed} --labels ${quoteShell(form.labels.join(","))} --template ${quoteShell(fields.template)}${fields.calibrate ? " --calibrate" : ""}` };
  }
  const task = form.tasks.length ? (form.tasks.includes(fields.task) ? fields.task : form.tasks[0]) : "";
  if (task) body.task = task;
  return { path: "/api/predict", body, python: `${load}.predict([${texts}]${task ? `, task=${quotePython(task)}` : ""})`, cli: `${printed}${task ? ` --task ${quoteShell(task)}` : ""}` };
}

/** Rows as csv (RFC 4180). */
export function csv(rows) {
  const cell = (value) => (/[",\n\r]/.test(String(value)) ? `"${String(value).replaceAll('"', '""')}"` : String(value));
  return rows.map((row) => row.map(cell).join(",")).join("\r\n") + "\r\n";
}
