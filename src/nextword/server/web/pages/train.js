/* Train: start a training on a text, and watch it. The list of jobs, the chosen one live, and the form for a new one. */

import { format } from "../core/address.js";
import { get, isSaved, post, remove } from "../core/api.js";
import { quoteShell } from "../core/commands.js";
import { h, put } from "../core/dom.js";
import { t } from "../core/i18n.js";
import { follow, isActive, isEnded } from "../core/jobs.js";
import { loadModels } from "../core/models.js";
import { Page } from "../core/page.js";
import "../components/job-view.js";
import "../components/training-form.js";

const LOOK_MS = 4000; // between two looks at the list while something runs
const IDLE_MS = 20_000; // … and while nothing does: another page may start something

export default class TrainPage extends Page {
  static defaults = { job: "", kind: "compare", data: "", recipe: "", models: [], minutes: 0, prompt: "" };

  #following = null; // {id, controller, isOver, job} of the job that is shown
  #timer = 0;
  #frame = 0;
  #jobs = [];

  build() {
    this.lost = h("div", { role: "status" });
    this.view = h("nw-job", { onact: (event) => this.#act(event.detail) });
    this.list = h("section", { class: "jobs" });
    this.form = h("nw-training-form", { onstart: (event) => this.#start(event.detail), onchoice: (event) => this.#keep(event.detail) });
    this.hero = h("section", { class: "hero card" });
    this.fold = h("details", { class: "new" }, h("summary", {}, this.t("new")), this.form);
    this.watched = h("section", { class: "watched", "aria-label": this.t("watched") }, this.lost, this.view);
    for (const part of [this.hero, this.watched, this.list]) part.hidden = true;
    return [this.hero, this.watched, this.list, isSaved ? null : this.fold];
  }

  disconnectedCallback() {
    super.disconnectedCallback();
    this.#leave();
    clearTimeout(this.#timer);
  }

  /** The form keeps what was typed into it. */
  restored() {
    if (this.offer && this.state.recipe) this.form.show(this.offer, this.state);
  }

  async update(signal) {
    try {
      const asked = isSaved || this.offer ? null : get("/api/recipes", { signal });
      asked?.catch(() => {}); // awaited below
      this.#jobs = (await get("/api/jobs", { signal })).jobs;
      this.#showList();
      if (asked) {
        this.offer = { ...(await asked), texts: null };
        this.form.show(this.offer, this.state);
      }
    } catch (error) {
      this.fold.hidden = true;
      throw error;
    }
    this.fold.hidden = false;
    this.#showJobs();
    if (this.offer && !this.offer.texts) await this.#offerTexts(signal);
  }

  /** The list of texts comes last, since the server reads their beginnings. */
  async #offerTexts(signal) {
    const { texts } = await get("/api/texts", { signal });
    this.offer = { ...this.offer, texts };
    this.form.show(this.offer, { ...this.form.choice, data: this.form.choice.data || this.state.data });
    this.#showHero();
  }

  /** The list, and of the jobs the one that the URL names, or that runs, or the newest. */
  #showJobs() {
    const jobs = this.#jobs;
    this.#showHero();
    this.#showList();
    const wanted = jobs.find((job) => job.id === this.state.job) ?? jobs.find(isActive) ?? (this.state.recipe ? null : jobs[0]);
    this.fold.open ||= !jobs.length ? !this.offer?.demo : Boolean(this.state.recipe && !this.state.job);
    if (wanted) this.#follow(wanted.id);
    else this.watched.hidden = true;
    this.#lookAgain();
  }

  requests() {
    const job = this.#jobs.find((each) => each.id === this.#following?.id);
    const { kind, models, recipe, data, minutes } = job ? { ...job, data: job.data.id } : this.state;
    if (!data || data === "own") return [];
    const text = data.startsWith("text-") ? "my.txt" : data;
    const time = minutes ? ` --minutes ${minutes}` : "";
    const names = job ? this.view.job?.runs.map((run) => run.result?.recipe ?? run.name) : models;
    const cli = kind === "compare" ? `nextword compare${(names ?? []).every((name) => name.includes("/")) ? (names ?? []).map((name) => ` ${quoteShell(name)}`).join("") : ""} --data ${quoteShell(text)}${time}` : `nextword train ${quoteShell(recipe ?? "")} --data ${quoteShell(text)}${minutes ? ` --set phase.0.minutes=${minutes}` : ""}`;
    const body = { kind, data, ...(kind === "compare" ? (job ? {} : { models }) : { recipe }), ...(minutes ? { minutes } : {}) };
    return [{ path: "/api/jobs", body, cli, python: kind === "compare" ? null : `nextword.train(${JSON.stringify(recipe)}, ${JSON.stringify(text)}, out="runs/mine")` }];
  }

  /** Without a model there is nothing to see yet: offer the demo, and say what it does. */
  #showHero() {
    const isFirst = !isSaved && !this.#jobs.length && this.offer?.demo;
    this.hero.hidden = !isFirst;
    if (!isFirst) return;
    const { demo, texts } = this.offer;
    const text = texts?.find((each) => each.id === demo.data)?.name ?? demo.data;
    const button = h("button", { type: "button", class: "big", onclick: () => { button.disabled = true; this.#begin(demo).catch((error) => { button.disabled = false; put(this.lost, h("div", { class: "notice error" }, error.message)); this.watched.hidden = false; }); } }, this.t("demo-button", { minutes: demo.minutes }));
    put(this.hero, h("h2", {}, this.t(this.hasModels ? "demo-title-more" : "demo-title")), h("ol", {}, ["read", "count", "learn", "use"].map((step) => h("li", {}, h("strong", {}, this.t(`demo:${step}`)), " ", this.t(`demo:${step}-help`, { text: text.split(",")[0], minutes: demo.minutes })))), h("p", { class: "go" }, button, h("span", { class: "note" }, this.t("demo-local"))));
  }

  #showList() {
    this.list.hidden = !this.#jobs.length;
    const row = (job) => {
      const open = h("a", { href: this.#linkTo(job), "aria-current": job.id === this.#following?.id ? "true" : null }, job.name);
      const what = job.kind === "compare" ? this.t("models-n", { n: job.models.length }) : job.recipe;
      return h("tr", {}, h("th", { scope: "row" }, open), h("td", {}, h("span", { class: `badge ${job.state}` }, this.t(`state:${job.state}`)), job.error ? h("small", {}, job.error) : null), h("td", {}, what), h("td", {}, job.data?.name), h("td", {}, job.minutes ? this.t("minutes-n", { n: job.minutes }) : "–"), h("td", {}, new Date(1000 * job.created).toLocaleString()));
    };
    const head = ["job", "state", "model", "text", "time", "created"].map((name) => h("th", { scope: "col" }, this.t(`column:${name}`)));
    put(this.list, h("h2", {}, this.t("jobs")), h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": this.t("jobs") }, h("table", {}, h("caption", {}, this.t("jobs")), h("thead", {}, h("tr", {}, head)), h("tbody", {}, this.#jobs.map(row)))));
  }

  #linkTo(job) {
    return format("train", { job: job.id }, TrainPage.defaults).fragment;
  }

  /** The list changes by itself, and what was resumed elsewhere is followed again. */
  #lookAgain() {
    clearTimeout(this.#timer);
    if (isSaved || !this.isConnected) return;
    this.#timer = setTimeout(
      async () => {
        if (!document.hidden) await this.#refreshList();
        this.#lookAgain();
      },
      this.#jobs.every(isEnded) ? IDLE_MS : LOOK_MS,
    );
  }

  #leave() {
    this.#following?.controller.abort();
    this.#following = null;
    cancelAnimationFrame(this.#frame);
    this.#frame = 0;
  }

  /** Show a job and keep up with it, in the background. */
  #follow(id) {
    if (this.#following?.id === id) return;
    this.#leave();
    const controller = new AbortController();
    const following = { id, controller, isOver: false, job: null };
    this.#following = following;
    this.#showList();
    const onJob = (job, event) => {
      if (controller.signal.aborted) return;
      put(this.lost);
      this.watched.hidden = false;
      if (event?.event === "served") loadModels().then(() => this.view.job && this.view.show(this.view.job), () => {});
      if (event?.event === "state" || (!event && isEnded(job))) this.#refreshList();
      following.job = job;
      this.#frame ||= requestAnimationFrame(() => {
        this.#frame = 0;
        this.view.show(following.job); // the latest: in a tab that is hidden, frames wait
      });
    };
    const onLost = () => put(this.lost, h("div", { class: "notice" }, h("span", { class: "spinner", "aria-hidden": "true" }), this.t("lost")));
    follow(id, { signal: controller.signal, onJob, onLost })
      .catch((error) => {
        if (controller.signal.aborted) return;
        put(this.lost, h("div", { class: "notice error", role: "alert" }, error.code === "saved" ? t("error:saved") : error.message));
        this.watched.hidden = false;
      })
      .finally(() => (following.isOver = true));
  }

  async #refreshList() {
    if (isSaved) return;
    try {
      this.#jobs = (await get("/api/jobs")).jobs;
      this.#showHero();
      this.#showList();
      const shown = this.#following?.isOver ? this.#jobs.find((job) => job.id === this.#following.id) : null;
      if (shown && !isEnded(shown)) {
        this.#leave();
        this.#follow(shown.id);
      }
    } catch {
      // the view says that the server is gone
    }
  }

  #keep({ kind, data, recipe, models, minutes }) {
    this.set({ kind, data, recipe: kind === "train" ? recipe : "", models: kind === "compare" ? models : [], minutes }, { quiet: true });
  }

  async #start({ upload, body }) {
    this.form.busy(true);
    try {
      if (upload) {
        const text = await post("/api/texts", upload);
        this.offer.texts = [text, ...this.offer.texts.filter((each) => each.id !== text.id)];
        this.form.uploaded(text);
        body.data = text.id;
      }
      await this.#begin(body);
      this.fold.open = false;
      this.form.show(this.offer, { ...this.state, data: body.data, models: body.models ?? [] });
    } catch (error) {
      this.form.fail(error.message || t("error:unreachable"));
    }
  }

  /** Start a job and show it. */
  async #begin(body) {
    const job = await post("/api/jobs", body);
    this.#jobs = [job, ...this.#jobs];
    this.hero.hidden = true;
    await this.set({ job: job.id });
    this.watched.scrollIntoView({ block: "start" });
  }

  async #act(name) {
    const id = this.#following?.id;
    if (!id) return;
    try {
      if (name === "remove") {
        if (!window.confirm(this.t("remove-sure"))) return;
        await remove(`/api/jobs/${id}?remove_run=true`, {});
        await loadModels();
        this.#leave();
        this.watched.hidden = true;
        await this.set({ job: "" });
        return;
      }
      await post(`/api/jobs/${id}/${name}`, {});
      this.#leave();
      this.#follow(id);
      await this.#refreshList();
    } catch (error) {
      put(this.lost, h("div", { class: "notice error", role: "alert" }, error.message || t("error:unreachable")));
    }
  }
}
