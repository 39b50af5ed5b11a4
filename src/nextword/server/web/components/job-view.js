/* <nw-job>: one training, as it goes on: progress, models, curves, samples. Dispatches "act" with "stop", "resume" or
   "remove" in `detail`. */

import { format } from "../core/address.js";
import { isSaved } from "../core/api.js";
import { h, put } from "../core/dom.js";
import { t } from "../core/i18n.js";
import { isActive, isEnded, progressOf } from "../core/jobs.js";
import { findModel } from "../core/models.js";
import { count, duration, fixed, percent } from "../core/numbers.js";
import { visible } from "../core/text.js";
import { key } from "./marks.js";
import "./line-chart.js";

const s = (name, values) => t(`train.${name}`, values);
const AXIS = { time: true };

class JobView extends HTMLElement {
  #id = null;
  #cards = new Map();
  #shown = new Set(); // samples that are in the list
  #curve = "valid"; // what the large chart shows of several models
  #signature = "";

  /** Show a job with its runs; call it again when it has changed. */
  show(job) {
    if (this.#id !== job.id) this.#build(job);
    this.job = job;
    this.#showHead(job);
    this.#showProgress(job);
    this.#showRuns(job);
    this.#showCurves(job);
    this.#showSamples(job);
    this.#showNext(job);
  }

  #build(job) {
    this.#id = job.id;
    this.#cards.clear();
    this.#shown.clear();
    this.#signature = "";
    const chart = () => h("nw-line-chart");
    this.parts = { head: h("div", { class: "job-head" }), status: h("p", { class: "job-status", role: "status" }), bar: h("progress", { max: 1, value: 0, "aria-label": s("progress") }), messages: h("div", {}), runs: h("ul", { class: "runs" }), curves: h("section", {}), pick: h("div", {}), main: chart(), norm: chart(), speed: chart(), rate: chart(), samples: h("ol", { class: "samples", reversed: true }), next: h("section", { class: "next-steps" }) };
    const { parts } = this;
    this.none = h("p", { class: "note" }, s("no-samples"));
    put(parts.curves, h("h3", {}, s("curve")), (this.help = h("p", { class: "note" })), parts.pick, parts.main);
    const small = (name) => h("div", {}, h("h3", {}, s(name)), h("p", { class: "note" }, s(`${name}-help`)), parts[name]);
    const samples = h("section", {}, h("h3", {}, s("samples")), h("p", { class: "note" }, s("samples-help")), this.none, h("div", { class: "samples-box", tabindex: "0", role: "region", "aria-label": s("samples") }, parts.samples));
    this.more = h("details", { class: "more curves", open: window.innerWidth > 860, ontoggle: () => this.job && this.#showCurves(this.job) }, h("summary", {}, s("more-curves")), h("div", { class: "trio" }, small("norm"), small("speed"), small("rate")));
    put(this, parts.head, parts.bar, parts.status, parts.messages, parts.runs, parts.next, parts.curves, samples, this.more);
  }

  #showHead(job) {
    const signature = [job.id, job.state, job.can_resume, job.name].join();
    if (signature === this.#signature) return; // a button that has the focus stays
    this.#signature = signature;
    const act = (name, kind = "plain") => h("button", { class: kind, type: "button", onclick: () => this.dispatchEvent(new CustomEvent("act", { detail: name, bubbles: true })) }, s(name));
    const facts = [job.recipe ?? s("models-n", { n: job.models.length }), job.data?.name, job.minutes && s("minutes-n", { n: job.minutes })].filter(Boolean).join(" · ");
    put(
      this.parts.head,
      h("div", {}, h("h2", {}, job.name, " ", h("span", { class: `badge ${job.state}` }, s(`state:${job.state}`))), h("p", { class: "note" }, facts)),
      isSaved ? null : h("div", { class: "actions" }, isActive(job) || job.state === "queued" ? act("stop") : null, (job.can_resume ?? ["stopped", "failed"].includes(job.state)) && isEnded(job) && job.state !== "finished" ? act("resume", "") : null, isEnded(job) ? act("remove") : null),
    );
  }

  #showProgress(job) {
    const { fraction, remaining } = progressOf(job);
    this.parts.bar.value = fraction;
    this.parts.bar.hidden = isEnded(job);
    const what = job.state === "queued" ? s("queued", { n: job.position ?? 1 }) : isActive(job) ? [job.current, s(`doing:${activityOf(job)}`)].filter(Boolean).join(": ") : "";
    const left = remaining === null || job.state === "stopping" ? "" : s("remaining", { time: duration(Math.max(1, Math.round(remaining))) });
    const text = [job.state === "stopping" ? s("stopping-help") : what, left].filter(Boolean).join(" · ");
    if (this.parts.status.textContent !== text) put(this.parts.status, text);
    const messages = [job.error && h("div", { class: "notice error" }, h("span", {}, job.error)), ...(job.warnings ?? []).map((text) => h("div", { class: "notice" }, h("span", {}, text)))];
    if (this.parts.messages.textContent !== messages.map((each) => each?.textContent ?? "").join("")) put(this.parts.messages, messages);
    if (job.headline) put(this.parts.status, h("strong", {}, job.headline));
  }

  /** A card for each model of a comparison; the ready ones appear with their score. */
  #showRuns(job) {
    job.runs.forEach((run, mark) => {
      const status = run.status === "sizing" && run.name !== job.current ? "waiting" : run.status; // sized, but not begun
      const signature = [status, run.result?.bits_per_byte, run.served, findModel(run.served)?.id, run.error].join();
      let card = this.#cards.get(run.name);
      if (card?.dataset.signature !== signature) {
        const fresh = this.#card(run, mark, status);
        fresh.dataset.signature = signature;
        if (card) card.replaceWith(fresh);
        else this.parts.runs.append(fresh);
        this.#cards.set(run.name, (card = fresh));
      }
      const bar = card.querySelector("progress");
      if (bar && run.name === job.current) bar.value = progressOf(job).run;
    });
  }

  #card(run, mark, status) {
    const score = run.result?.bits_per_byte;
    const isDone = status === "done";
    const seconds = run.steps.at(-1)?.seconds ?? run.result?.seconds;
    return h(
      "li",
      { class: `run ${status}` },
      h("h3", {}, key(mark), run.name),
      isDone && Number.isFinite(score) ? h("p", { class: "score" }, fixed(score, 3), h("small", {}, t("bits-per-byte"))) : h("p", { class: "note" }, s(`run:${status}`)),
      ["training", "sizing", "scoring"].includes(status) ? h("progress", { max: 1, value: 0, "aria-label": `${run.name}: ${s("progress")}` }) : null,
      isDone ? h("p", { class: "note" }, [run.result?.parameters ?? run.begin?.parameters ? `${count(run.result?.parameters ?? run.begin.parameters)} ${t("parameters")}` : "", Number.isFinite(seconds) ? duration(seconds) : ""].filter(Boolean).join(" · ")) : null,
      run.error ? h("p", { class: "note" }, run.error) : null,
      run.served && !isSaved ? h("p", {}, h("a", { href: linkTo(pagesFor([run.served])[0] ?? "type", { models: [run.served], model: run.served }) }, s("try-it"))) : null,
    );
  }

  #showCurves(job) {
    const { parts } = this;
    const inBits = job.runs.every((run) => !run.steps.length || run.steps.some((step) => Number.isFinite(step.train_bits_per_byte)));
    const unit = inBits ? t("bits-per-byte") : s("nats");
    const train = (run) => run.steps.map((step) => ({ x: step.seconds, y: inBits ? step.train_bits_per_byte : step.loss }));
    const valid = (run) => run.validations.map((point) => ({ x: point.seconds, y: inBits ? point.valid_bits_per_byte : point.valid }));
    const write = (value) => fixed(value, value < 10 ? 2 : 1);
    put(this.help, s(inBits ? (job.kind === "compare" ? "curve-help-compare" : "curve-help") : "curve-help-nats"));
    let series;
    if (job.kind === "compare") {
      this.#showPick();
      const points = this.#curve === "valid" ? valid : train;
      series = job.runs.map((run, mark) => ({ name: run.name, mark, points: points(run), level: !run.steps.length && run.status === "done" ? run.result?.bits_per_byte : undefined }));
    } else {
      const run = job.runs[0];
      series = run ? [{ name: s("training"), mark: 0, points: train(run), isSoft: true }, { name: s("validation"), mark: 1, points: valid(run) }] : [];
    }
    const drawn = series.flatMap((each) => each.points);
    parts.curves.hidden = !drawn.length;
    const values = drawn.map((point) => point.y).filter((value) => value > 0);
    const isSteep = values.length > 0 && Math.max(...values) > 4 * Math.min(...values);
    parts.main.show({ series, x: { label: s("time"), ...AXIS }, y: { label: unit, write, log: isSteep }, title: s("curve"), height: window.innerWidth < 640 ? 260 : 340 });
    this.more.hidden = !drawn.length;
    if (!this.more.open) return;
    const each = (field) => job.runs.map((run, mark) => ({ name: run.name, mark, isSoft: true, points: run.steps.map((step) => ({ x: step.seconds, y: step[field] })) }));
    const small = (name, field, axis) => parts[name].show({ series: each(field), x: { label: s("time"), ...AXIS }, y: axis, title: s(name), height: 220 });
    small("norm", "norm", { label: s("norm-axis"), log: true, write: short });
    small("speed", "tokens_per_second", { label: s("speed-axis"), write: (value) => (value >= 1000 ? `${Number((value / 1000).toPrecision(3))} k` : String(Number(value.toPrecision(3)))) });
    small("rate", "rate", { label: s("rate-axis"), write: short });
  }

  #showPick() {
    if (this.parts.pick.firstChild) return;
    const choice = (value) => {
      const input = h("input", { type: "radio", name: `curve-${this.#id}`, id: `curve-${this.#id}-${value}`, value, onchange: () => { this.#curve = value; this.#showCurves(this.job); } });
      input.checked = value === this.#curve;
      return h("span", { class: "chip" }, input, h("label", { for: input.id }, s(value === "valid" ? "validation" : "training")));
    };
    put(this.parts.pick, h("fieldset", { class: "chips", "aria-label": s("curve") }, choice("valid"), choice("train")));
  }

  /** The newest first. What has been shown stays, so that a reader's place is kept. */
  #showSamples(job) {
    const isLast = ({ step }, i, samples) => i === samples.findLastIndex((other) => other.step === step); // a finished run's comes twice
    const all = job.runs.flatMap((run, mark) => run.samples.filter(isLast).map((sample) => ({ run, mark, sample, id: `${run.name}/${sample.step}/${sample.seconds}` })));
    if ([...this.#shown].some((id) => !all.some((each) => each.id === id))) {
      this.#shown.clear(); // after a resume, some are computed again
      put(this.parts.samples);
    }
    for (const { run, mark, sample, id } of all) {
      if (this.#shown.has(id)) continue;
      this.#shown.add(id);
      this.parts.samples.prepend(this.#sample(job, run, mark, sample));
    }
    this.none.hidden = all.length > 0;
    this.parts.samples.parentElement.hidden = all.length === 0;
  }

  #sample(job, run, mark, sample) {
    const at = run.validations.findLast?.((point) => point.step <= sample.step) ?? run.steps.findLast?.((point) => point.step <= sample.step);
    const bits = at?.valid_bits_per_byte ?? at?.train_bits_per_byte;
    const nats = at?.valid ?? at?.loss;
    const loss = Number.isFinite(bits) ? `${fixed(bits, 2)} ${t("bits-per-byte")}` : Number.isFinite(nats) ? `${fixed(nats, 2)} ${s("nats")}` : null;
    const facts = [job.kind === "compare" ? run.name : null, duration(sample.seconds), s("step-n", { n: count(sample.step) }), loss].filter(Boolean).join(" · ");
    let text;
    if (sample.kind === "blank") {
      const [before, after] = sample.prompt.split("___", 2);
      text = [h("p", { class: "text", dir: "auto" }, before, h("mark", {}, visible(sample.text)), after ?? ""), h("p", { class: "note" }, (sample.guesses ?? []).map((guess) => `${visible(guess.text)} ${percent(guess.p)}`).join(" · "))];
    } else if (sample.kind === "translation") {
      text = [h("p", { class: "note", dir: "auto" }, sample.prompt), h("p", { class: "text", dir: "auto" }, sample.text || "∅"), sample.reference ? h("p", { class: "note", dir: "auto" }, `${s("reference")} ${sample.reference}`) : null];
    } else {
      text = h("p", { class: "text", dir: "auto" }, h("span", { class: "prompt" }, sample.prompt), sample.text);
    }
    return h("li", {}, h("p", { class: "facts" }, job.kind === "compare" ? key(mark) : null, facts), text);
  }

  /** When it has ended: what to do with the models. */
  #showNext(job) {
    const served = job.served ?? [];
    const isReady = isEnded(job) && served.length > 0;
    const signature = `${isReady}/${served.filter(findModel).join()}/${job.comparison}`;
    if (this.parts.next.dataset.signature === signature) return;
    this.parts.next.dataset.signature = signature;
    this.parts.next.hidden = !isReady || isSaved;
    if (!isReady) return;
    const links = [...pagesFor(served).map((page) => [page, linkTo(page, { models: served.slice(0, 6), model: served[0] })]), job.comparison ? ["compare", linkTo("compare", { name: job.comparison })] : null];
    put(this.parts.next, h("h3", {}, s("next")), h("ul", { class: "links" }, links.filter(Boolean).map(([page, href]) => h("li", {}, h("a", { href }, t(`page:${page}`)), " ", h("span", {}, s(`next:${page}`))))));
  }
}

/** The pages that can use these models. */
function pagesFor(served) {
  const models = served.map(findModel).filter(Boolean);
  const needs = { type: "next", read: "score", write: "generate", fill: "fill", translate: "seq2seq", vectors: "embed" };
  return Object.keys(needs).filter((page) => models.some((model) => model.can(needs[page])) && (page !== "fill" || models.some((model) => model.isMasked || model.infills)) && !(page === "type" && models.every((model) => model.isMasked))).slice(0, 4);
}

function linkTo(page, state) {
  return format(page, state, { models: [], model: "", name: "" }).fragment;
}

function activityOf(job) {
  const known = ["preparing", "reading", "tokenizer", "training", "evaluating", "sizing", "scoring"];
  return known.find((each) => (job.activity ?? "").startsWith(each)) ?? "starting";
}

function short(value) {
  return value >= 0.0001 || value === 0 ? String(Number(value.toPrecision(3))) : value.toExponential(1).replace("e-", "e−");
}

customElements.define("nw-job", JobView);
