/* A training that runs on the server: its events folded into one object, and a connection that comes back by itself.

   The object is that of GET /api/jobs/ID. Events change it in place; so a saved page, whose records hold the same object,
   shows what was on the screen. */

import { get, stream } from "./api.js";

const RETRY_MS = 2000;
const MOST_POINTS = 1000; // of one run

export function isEnded(job) {
  return ["finished", "stopped", "failed"].includes(job.state);
}

export function isActive(job) {
  return ["running", "stopping"].includes(job.state);
}

/** Change a job as an event of its stream says. */
export function fold(job, event) {
  if (event.seq) job.last_seq = event.seq;
  const run = event.model ? runOf(job, event.model) : null;
  if (run) job.current = event.model;
  switch (event.event) {
    case "state":
      job.state = event.state;
      job.error = event.error ?? null;
      job.position = null;
      if (isEnded(job)) for (const each of job.runs) if (["training", "sizing", "scoring"].includes(each.status)) each.status = event.state === "failed" ? "failed" : "stopped";
      break;
    case "activity":
      job.activity = event.label;
      break;
    case "begin":
      run.begin = event;
      run.status = "training";
      for (const key of ["steps", "validations", "samples"]) run[key] = run[key].filter((point) => point.step <= event.step); // computed again
      job.activity = "training";
      break;
    case "step":
      run.status = "training";
      run.counting = event.loss === undefined ? event : null;
      if (event.loss !== undefined) run.steps = spare([...run.steps, event]);
      run.latest = event;
      break;
    case "valid":
      run.validations = spare([...run.validations, event]);
      break;
    case "sample":
      run.samples = [...run.samples.filter((sample) => sample.step !== event.step), event]; // the last one comes twice
      break;
    case "end":
      run.end = event;
      job.activity = "evaluating";
      break;
    case "evaluate":
      run.result = event;
      run.status = "done";
      break;
    case "status":
      run.status = event.status;
      if (event.row) run.result = event.row;
      if (event.row?.error) run.error = event.row.error;
      break;
    case "served":
      run.served = event.id;
      job.served = [...new Set([...(job.served ?? []), event.id])];
      break;
    case "warning":
      job.warnings = [...new Set([...(job.warnings ?? []), ...event.warnings])];
      break;
    case "comparison":
      Object.assign(job, { headline: event.headline, winner: event.winner, mixture: event.mixture });
      break;
    default: // of a newer server
  }
  return job;
}

/** How far the training is: {fraction of all models, run: of the current one, remaining: seconds or null}. */
export function progressOf(job) {
  const runs = job.runs ?? [];
  const current = runs.find((run) => run.name === job.current);
  const own = current ? fractionOf(current, job) : 0;
  const done = runs.filter((run) => ["done", "failed"].includes(run.status)).length;
  const fraction = job.state === "finished" ? 1 : runs.length ? Math.min(1, (done + (current && !["done", "failed"].includes(current.status) ? own : 0)) / runs.length) : 0;
  return { fraction, run: own, remaining: remainingOf(job, current, own) };
}

function fractionOf(run, job) {
  if (["done", "scoring"].includes(run.status)) return 1;
  if (run.counting) return run.counting.fraction ?? 0;
  const last = run.latest ?? run.steps.at(-1);
  const total = last?.of ?? run.begin?.steps;
  if (last && total) return Math.min(1, last.step / total);
  return run.name === job.current ? (job.progress ?? 0) : 0;
}

function remainingOf(job, current, fraction) {
  if (!isActive(job) || !current) return null;
  const seconds = current.steps.at(-1)?.seconds ?? 0;
  const own = fraction > 0.02 && seconds ? seconds / fraction - seconds : null;
  if (job.kind !== "compare" || !job.minutes) return own;
  const used = job.runs.reduce((sum, run) => sum + (run.steps.at(-1)?.seconds ?? 0), 0);
  return Math.max(60 * job.minutes - used, own ?? 0);
}

/** Keep the connection to a job until it ends or the signal says so. `onJob(job, event)`: it is new, or has changed;
 *  `onLost(error)`: no connection, tried again every two seconds. */
export async function follow(id, { signal, onJob, onLost }) {
  for (;;) {
    try {
      const job = await get(`/api/jobs/${id}`, { signal });
      onJob(job, null);
      if (isEnded(job)) return;
      for await (const event of stream(`/api/jobs/${id}/events?after=${job.last_seq}`, undefined, { signal, method: "GET", isRecorded: false })) onJob(fold(job, event), event);
      if (isEnded(job)) {
        onJob(await get(`/api/jobs/${id}`, { signal }), null); // complete: with its results
        return;
      }
    } catch (error) {
      if (signal.aborted) return;
      if ([403, 404].includes(error.status) || error.code === "saved") throw error;
      onLost(error);
    }
    await new Promise((resolve) => setTimeout(resolve, RETRY_MS));
    if (signal.aborted) return;
  }
}

function runOf(job, name) {
  let run = job.runs.find((each) => each.name === name);
  if (!run) {
    run = { name, status: "waiting", error: null, begin: null, end: null, result: null, served: null, steps: [], validations: [], samples: [] };
    job.runs.push(run);
  }
  return run;
}

/** Half of the points, if there are too many; the last one stays. */
function spare(points) {
  if (points.length <= MOST_POINTS) return points;
  return points.filter((_, index) => index % 2 === 0 || index === points.length - 1);
}
