/* Requests to the server that this page came from. Nothing else is ever contacted.

   A saved page (saving.js) has no server: it brings recorded answers, and requests without one fail with code "saved". */

const KEY = "nextword.key"; // of sessionStorage: the API key, if the server wants one
const RECORDED_MOST = 300;
const MODELS = "GET /v1/models "; // begins the name of the request that every saved page needs

const saved = readSaved(); // of a saved page: {answers, fragment, language, date}
const recorded = saved?.answers ?? null; // request → answer
const answers = new Map(); // request → answer, for saving this view

export class ApiError extends Error {
  /** status 0: the server did not answer. */
  constructor(message, { status = 0, code = null, param = null, retryAfter = 0 } = {}) {
    super(message);
    Object.assign(this, { name: "ApiError", status, code, param, retryAfter });
  }
}

/** Whether this is a saved page, which has no server. */
export const isSaved = saved !== null;

/** The view that a saved page shows. */
export function savedView() {
  return saved;
}

export function get(path, options = {}) {
  return request("GET", path, undefined, options);
}

export function post(path, body, options = {}) {
  return request("POST", path, body, options);
}

export function remove(path, body, options = {}) {
  return request("DELETE", path, body, options);
}

/** The objects of a stream of server-sent events, as they arrive. An error in the stream is thrown. */
export async function* stream(path, body, { signal, method = "POST", isRecorded = true } = {}) {
  const name = nameOf(method, path, body);
  if (recorded) {
    if (!(name in recorded)) throw new ApiError("", { code: "saved" });
    yield* recorded[name];
    return;
  }
  const response = await send(method, path, body, signal);
  const events = [];
  let rest = "";
  for await (const text of decode(response.body)) {
    const blocks = (rest + text).split("\n\n");
    rest = blocks.pop();
    for (const block of blocks) {
      const data = block
        .split("\n")
        .filter((line) => line.startsWith("data: "))
        .map((line) => line.slice(6))
        .join("\n");
      if (!data || data === "[DONE]") continue; // a comment keeps the connection alive
      const event = JSON.parse(data);
      if (event.error && event.error.message !== undefined) throw new ApiError(event.error.message, { status: 500, ...event.error });
      if (isRecorded) events.push(event);
      yield event;
    }
  }
  if (isRecorded) keep(name, events);
}

/** An answer that is not JSON. */
export async function getText(path) {
  return reach((await send("GET", path)).text());
}

/** Whether the server wants a key, which a link cannot send. */
export function hasKey() {
  return Boolean(sessionStorage.getItem(KEY));
}

/** Record an answer that a page remembers from before, as if it had asked again. */
export function record(method, path, body, answer) {
  keep(nameOf(method, path, body), answer);
}

/** What a saved page needs in order to show this view again. */
export function recordedAnswers() {
  return Object.fromEntries(answers);
}

/** Forget the answers of the page that was left; the list of models stays. */
export function forgetAnswers() {
  for (const name of answers.keys()) if (!name.startsWith(MODELS)) answers.delete(name);
}

export function setKey(key) {
  sessionStorage.setItem(KEY, key);
}

async function request(method, path, body, { signal } = {}) {
  const name = nameOf(method, path, body);
  if (recorded) {
    if (!(name in recorded)) throw new ApiError("", { code: "saved" });
    return recorded[name];
  }
  const answer = await reach((await send(method, path, body, signal)).json());
  keep(name, answer);
  return answer;
}

async function send(method, path, body, signal) {
  const headers = {};
  const key = sessionStorage.getItem(KEY);
  if (key) headers.authorization = `Bearer ${key}`;
  if (method !== "GET") headers["content-type"] = "application/json";
  const init = { method, headers, signal, credentials: "omit", redirect: "error" };
  if (method !== "GET") init.body = JSON.stringify(body ?? {});
  const response = await reach(fetch(path, init));
  if (response.ok) return response;
  const problem = await response.json().then((value) => value.error ?? {}, () => ({}));
  const retryAfter = Number(response.headers.get("retry-after") ?? 0);
  throw new ApiError(problem.message ?? `HTTP ${response.status}`, { ...problem, status: response.status, retryAfter });
}

/** The result of a promise of fetch, which has a TypeError when the connection fails. */
async function reach(promise) {
  try {
    return await promise;
  } catch (error) {
    throw error instanceof TypeError ? new ApiError("", { code: "unreachable" }) : error;
  }
}

async function* decode(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  try {
    for (;;) {
      const { value, done } = await reach(reader.read());
      if (done) return;
      yield value;
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

function keep(name, answer) {
  answers.delete(name);
  answers.set(name, answer);
  if (answers.size > RECORDED_MOST) answers.delete([...answers.keys()].find((each) => !each.startsWith(MODELS)));
}

function nameOf(method, path, body) {
  return `${method} ${path} ${JSON.stringify(body ?? null)}`;
}

function readSaved() {
  const element = globalThis.document?.getElementById("recorded");
  return element ? JSON.parse(element.textContent) : null;
}
