"""Training on behalf of clients: one job at a time, in a process of its own (worker.py); others wait in a queue.

    FOLDER/NAME/                             the run, or the comparison with its runs
    FOLDER/.playground/jobs/ID.json          what was asked for, and the state
    FOLDER/.playground/jobs/ID.jsonl         the events: one per line, numbered from 1
    FOLDER/.playground/jobs/ID.log           what the worker wrote to standard error
    FOLDER/.playground/texts/                uploads (texts.py)

    queued ──▶ running ──▶ finished │ failed │ stopping ──▶ stopped          stopped, failed ──resume──▶ queued

A worker ends with its state saved when it is stopped and when the server ends. A job that was queued or running when
the server ended is therefore `stopped` for the next server, and can be resumed.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import logging
import os
import secrets
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from nextword.comparison.compare import make_plan
from nextword.core.errors import NextwordError, describe_os_error
from nextword.core.io import parse_json, read_json, to_json, write_atomically
from nextword.run_folder import RunFolder
from nextword.server.job_history import ACTIVE, RESUMABLE, Job, Object, summarize_runs
from nextword.server.security import Refusal
from nextword.server.texts import Texts

logger = logging.getLogger("nextword.server")

MAX_JOBS, MAX_QUEUED = 100, 8
MAX_LINE = 8 << 20  # bytes of an event
END_SECONDS = 40.0  # for a worker to end after a stop; longer than it gives itself
HIDDEN = ".playground"
WORKER = [sys.executable, "-P", "-m", "nextword.server.worker"]
# The worker gets nothing else of the environment: the server's key is none of its business.
ENVIRONMENT = (
    *("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "XDG_CACHE_HOME", "NEXTWORD_CACHE", "NEXTWORD_HOME", "PYTHONPATH"),
    *("LD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "NEXTWORD_MAX_LINE"),
)


@dataclass
class _Active:
    """The job that runs now: its process and its events."""

    job: Job
    process: subprocess.Popen[bytes] | None = None
    thread: threading.Thread | None = None
    outcome: Object | None = None


class Jobs:
    """The jobs of a folder.

    serve     called with the name and the folder of a finished run; serves it, and returns its name
    remove    called with such a name; returns False if the model cannot be removed now
    """

    def __init__(
        self, folder: Path, serve: Callable[[str, Path], str], remove: Callable[[str], bool], device: str = "auto"
    ) -> None:
        self.folder, self.device, self._serve, self._remove = folder.absolute(), device, serve, remove
        self.place = self.folder / HIDDEN / "jobs"
        self.texts = Texts(self.folder / HIDDEN / "texts")
        self._uploading = threading.Lock()
        self._lock = threading.RLock()  # guards all below; held only for a moment, since streams of events wait for it
        self._jobs: dict[str, Job] = {}  # oldest first
        self._events: dict[str, list[Object]] = {}  # of jobs that are queued or run; those of others are in their files
        self._queue: list[str] = []
        self._active: _Active | None = None
        self._listeners: set[Callable[[], None]] = set()
        self._is_closed = False
        self._claim: int | None = None
        if self.place.is_dir():
            self._load()

    # -------------------------------------------------------------------------------------------- what there is

    def overview(self) -> list[Object]:
        """All jobs, newest first."""
        with self._lock:
            return [self._describe(job) for job in reversed(self._jobs.values())]

    def describe(self, id: str) -> Object:
        """A job with the history of its runs. Raises Refusal."""
        with self._lock:
            job = self._find(id)
            shown, events = self._describe(job), self._read_events(job)
        return shown | summarize_runs(job, events)

    def find(self, id: str) -> Object:
        """A job without its history. Raises Refusal."""
        with self._lock:
            return self._describe(self._find(id))

    def folders(self) -> dict[str, Path]:
        """Name → folder of all comparisons."""
        with self._lock:
            return {job.name: self.folder / job.name for job in self._jobs.values() if job.kind == "compare"}

    def find_by_name(self, name: str) -> Object | None:
        """The job that trains into the folder of this name."""
        return next((job for job in self.overview() if job["name"] == name), None)

    def users_of(self, text: str) -> list[str]:
        """The jobs that need a text: all that are not finished."""
        with self._lock:
            return [job.id for job in self._jobs.values() if job.data["id"] == text and job.state != "finished"]

    async def follow(self, id: str, after: int) -> AsyncIterator[Object]:
        """The events of a job after a number, until it ends. Raises Refusal."""
        changed, loop = asyncio.Event(), asyncio.get_running_loop()

        def notify() -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(changed.set)

        with self._lock:
            self._listeners.add(notify)
        try:
            while True:
                changed.clear()
                with self._lock:
                    job = self._find(id)
                    is_over = job.state not in ACTIVE or self._is_closed
                    events = self._read_events(job) if job.last_seq > after else []
                for event in events:
                    if event["seq"] > after:
                        after = event["seq"]
                        yield event
                if is_over:
                    return
                await changed.wait()
        finally:
            with self._lock:
                self._listeners.discard(notify)

    # -------------------------------------------------------------------------------------------- what clients ask

    def add_text(self, name: str, text: str, kind: Any) -> Object:
        """Save an upload. Raises Refusal."""
        with self._uploading, _explain_full_disk():
            with self._lock:
                self._claim_folder()
            return self.texts.add(name, text, kind)

    def remove_text(self, id: str) -> None:
        """Remove an upload that no job needs. Raises Refusal."""
        with self._uploading, self._lock:
            self.texts.remove(id, self.users_of(id))

    def add(
        self,
        kind: str,
        recipe: str | None,
        compared: Sequence[str],
        text: Mapping[str, Any],
        minutes: float | None,
        prompt: str,
        name: str,
    ) -> Object:
        """Queue a new job, and start it if no other one runs. Raises Refusal, and the errors of an unusable plan."""
        with self._lock, _explain_full_disk():
            self._refuse_if_full()
            self._claim_folder()
            name = self._make_unique(name)
            if kind == "compare":
                plan = make_plan(self.folder / name, compared, self.texts.source(text["id"]), minutes or 1.0)
                models = [entry["name"] for entry in plan.entries]
            else:
                models = [name]
            data = {"id": text["id"], "name": text["name"]}
            made = (recipe, models, [*compared], data, minutes, prompt, int(time.time()))
            job = Job(secrets.token_hex(6), kind, name, *made)
            self.place.mkdir(parents=True, exist_ok=True)
            self._save(job)
            self._jobs[job.id] = job
            self._enqueue(job)
            return self._describe(job)

    def stop(self, id: str) -> Object:
        """End a job with its state saved. Raises Refusal."""
        with self._lock:
            job = self._find(id)
            if job.state == "queued":
                self._queue.remove(id)
                self._end(job, "stopped")
            elif job.state == "running" and self._active is not None:
                self._set_state(job, "stopping")
                _ask_to_stop(self._active.process)
            else:
                raise Refusal(409, f"The job is {job.state}, so there is nothing to stop.", code="not_running")
            return self._describe(job)

    def resume(self, id: str) -> Object:
        """Queue a job again that was stopped or has failed. Raises Refusal."""
        with self._lock, _explain_full_disk():
            job = self._find(id)
            if job.state not in RESUMABLE:
                problem = f"The job is {job.state}. Only a stopped or failed one can be resumed."
                raise Refusal(409, problem, code="not_resumable")
            self.texts.find(job.data["id"])
            self._refuse_if_full(0)
            self._claim_folder()
            self._enqueue(job)
            return self._describe(job)

    def remove(self, id: str, remove_run: bool) -> bool:
        """Forget a job; with `remove_run`, remove its folder too; return whether there was one. Raises Refusal."""
        with self._lock:
            job = self._find(id)
            if job.state in ACTIVE:
                raise Refusal(409, f"The job is {job.state}. Stop it first.", code="running")
            folder = self.folder / job.name
            has_run = remove_run and folder.is_dir()
            if has_run:
                self._refuse_if_compared(folder)
                for model in list(job.served.values()):
                    if not self._remove(model):
                        problem = f"The model {model} answers requests now. Try again later."
                        raise Refusal(409, problem, code="in_use", retry_after=5)
                shutil.rmtree(folder)
            for suffix in (".json", ".jsonl", ".log"):
                (self.place / f"{id}{suffix}").unlink(missing_ok=True)
            del self._jobs[id]
            return has_run

    def _refuse_if_compared(self, folder: Path) -> None:
        for other in self._jobs.values():
            if other.state in ACTIVE and any(Path(run).is_relative_to(folder) for run in other.compared):
                problem = f"The comparison {other.name} needs this run. Wait until it has ended, or stop it."
                raise Refusal(409, problem, code="in_use")

    def begin_shutdown(self) -> None:
        """Start no more jobs, and end all streams of events, so that the server need not wait for them."""
        self._is_closed = True
        self._notify()

    def close(self) -> None:
        """Stop the running job, and wait until its state is saved."""
        self.begin_shutdown()
        with self._lock:
            active = self._active
            if active is not None and active.job.state == "running":
                self._set_state(active.job, "stopping")
        if active is not None and active.thread is not None:
            _ask_to_stop(active.process)
            active.thread.join(END_SECONDS)
            if active.thread.is_alive() and active.process is not None:
                active.process.kill()
                active.thread.join()
        if self._claim is not None:
            os.close(self._claim)
            self._claim = None

    # -------------------------------------------------------------------------------------------- files

    def _load(self) -> None:
        """Read the jobs of earlier servers, and serve what they have trained."""
        # Another server trains here: its jobs are shown when it has ended. Or the folder cannot be written.
        with contextlib.suppress(Refusal, OSError):
            self._claim_folder()
            jobs = []
            for path in self.place.glob("*.json"):
                with contextlib.suppress(NextwordError, TypeError, OSError):  # damaged, or of another version
                    jobs.append(Job(**read_json(path)))
            for job in sorted(jobs, key=lambda job: job.created):
                self._jobs[job.id] = job
                if job.state in ACTIVE:
                    for event in self._read_events(job):
                        job.note(event)
                    self._end(job, "stopped")
                job.served.clear()  # by this server, other runs may have these names
                for model in job.models:
                    self._serve_run(job, model)

    def _claim_folder(self) -> None:
        """Make sure that no other server trains into the folder."""
        if self._claim is not None:
            return
        (self.folder / HIDDEN).mkdir(parents=True, exist_ok=True)
        handle = os.open(self.folder / HIDDEN / "lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o644)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(handle)
            problem = "Another server trains into the same folder. Use its page, or end it and start this one again."
            raise Refusal(409, problem, code="folder_in_use") from None
        self._claim = handle

    def _save(self, job: Job) -> None:
        with write_atomically(self.place / f"{job.id}.json") as file:
            file.write(to_json(asdict(job), indent=1).encode())

    def _read_events(self, job: Job) -> list[Object]:
        if job.id in self._events:
            return list(self._events[job.id])
        events = []
        with contextlib.suppress(OSError), (self.place / f"{job.id}.jsonl").open("rb") as file:
            for line in file:
                with contextlib.suppress(NextwordError):  # cut short by a kill or a full disk
                    event = parse_json(line, "an event")
                    if isinstance(event, dict) and "event" in event and isinstance(event.get("seq"), int):
                        events.append(event)
        return events

    def _make_unique(self, name: str) -> str:
        taken = {job.name for job in self._jobs.values()}
        unique, number = name, 2
        while unique in taken or (self.folder / unique).exists():
            unique, number = f"{name}-{number}", number + 1
        return unique

    # -------------------------------------------------------------------------------------------- states

    def _find(self, id: str) -> Job:
        if id not in self._jobs:
            raise Refusal(404, f"There is no job {id[:40]!r}. GET /api/jobs lists them.", code="no_job")
        return self._jobs[id]

    def _describe(self, job: Job) -> Object:
        shown = {key: value for key, value in asdict(job).items() if key != "compared"}
        return shown | {
            "served": list(job.served.values()),
            "position": self._queue.index(job.id) + 1 if job.id in self._queue else None,
            "can_resume": job.state in RESUMABLE,
            "comparison": job.name if job.kind == "compare" else None,
        }

    def _refuse_if_full(self, new: int = 1) -> None:
        if self._is_closed:
            raise Refusal(503, "The server is shutting down.", code="draining", retry_after=30)
        if len(self._jobs) + new > MAX_JOBS:
            raise Refusal(409, f"There are {MAX_JOBS} jobs already. Delete old ones first.", code="too_many_jobs")
        if len(self._queue) >= MAX_QUEUED:
            problem = f"{MAX_QUEUED} jobs wait already. Try again when one has ended."
            raise Refusal(429, problem, code="queue_full", retry_after=60)

    def _set_state(self, job: Job, state: str, error: str | None = None) -> None:
        self._append(job, {"event": "state", "state": state, "error": error})

    def _end(self, job: Job, state: str, error: str | None = None) -> None:
        """A last event; from now on the events are read from their file."""
        self._set_state(job, state, error)
        self._events.pop(job.id, None)

    def _append(self, job: Job, event: Object) -> None:
        """Number an event, keep it, and tell whoever follows the job. A full disk must not end a training."""
        event = {"seq": job.last_seq + 1, **event}
        job.note(event)
        if job.id in self._events:
            self._events[job.id].append(event)
        with contextlib.suppress(OSError, NextwordError):
            _append_line(self.place / f"{job.id}.jsonl", to_json(event))
            if event["event"] in ("state", "served"):
                self._save(job)
        self._notify()

    def _notify(self) -> None:
        for listener in tuple(self._listeners):
            listener()

    def _enqueue(self, job: Job) -> None:
        self._events[job.id] = self._read_events(job)
        self._set_state(job, "queued")
        self._queue.append(job.id)
        self._start_next()

    def _start_next(self) -> None:
        if self._active is None and self._queue and not self._is_closed:
            job = self._jobs[self._queue.pop(0)]
            self._active = _Active(job)
            self._set_state(job, "running")
            self._active.thread = threading.Thread(target=self._run, args=(self._active,), name="job", daemon=True)
            self._active.thread.start()

    # -------------------------------------------------------------------------------------------- the process

    def _run(self, active: _Active) -> None:
        """Start the worker, take its events, and end the job with it."""
        job, code = active.job, 0
        try:
            request = {**asdict(job), "folder": str(self.folder / job.name), "device": self.device}
            request["source"] = self.texts.source(job.data["id"])
            code = self._read_worker(active, to_json(request))
        except (Refusal, NextwordError, OSError) as error:
            active.outcome = {"state": "failed", "error": self._hide_paths(str(error))}
        except Exception:  # a bug: it must not hold up the jobs that wait
            logger.exception("job %s", job.id)
            active.outcome = {"state": "failed", "error": "The server has a bug, which its log describes."}
        outcome = active.outcome or {"state": "failed", "error": describe_exit(job, code)}
        with self._lock:
            is_stopped = job.state == "stopping" and outcome["state"] == "failed" and active.outcome is None
            if is_stopped:  # the worker did not end in time: the state saved before counts
                outcome = {"state": "stopped", "error": None}
            self._active = None
            self._end(job, outcome["state"], outcome["error"])
            self._start_next()

    def _read_worker(self, active: _Active, request: str) -> int:
        """Run a worker until it ends; return its exit code."""
        environment = {key: os.environ[key] for key in ENVIRONMENT if key in os.environ}
        with (self.place / f"{active.job.id}.log").open("wb") as log:
            process = subprocess.Popen(
                WORKER,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env=environment,
                start_new_session=True,  # Ctrl-C in the server's terminal is for the server, which stops the worker
            )
        assert process.stdin is not None
        assert process.stdout is not None
        with process:
            with contextlib.suppress(BrokenPipeError):
                process.stdin.write(request.encode() + b"\n")
                process.stdin.flush()
            with self._lock:
                active.process = process
                if active.job.state == "stopping":
                    _ask_to_stop(process)
            while line := process.stdout.readline(MAX_LINE):
                with contextlib.suppress(ValueError):  # not JSON
                    event = json.loads(line)
                    if isinstance(event, dict) and "event" in event:
                        self._take(active, event)
            return process.wait()

    def _take(self, active: _Active, event: Object) -> None:
        """An event of the worker."""
        job = active.job
        event = json.loads(self._hide_paths(json.dumps(event, ensure_ascii=False)))
        with self._lock:
            if event["event"] == "outcome":
                active.outcome = event
                return
            model = str(event.get("model"))
            self._append(job, event)
            is_done = event["event"] == "evaluate" or (event["event"] == "status" and event["status"] == "done")
            if is_done and self._serve_run(job, model):
                self._append(job, {"event": "served", "model": model, "id": job.served[model]})

    def _serve_run(self, job: Job, model: str) -> bool:
        """Serve a run of this job if it is finished; not those that it only compares."""
        folder = self.folder / job.name / model if job.kind == "compare" else self.folder / job.name
        with contextlib.suppress(NextwordError, OSError):
            run = RunFolder.open(folder)
            if run.is_finished and run.has_model:
                job.served[model] = self._serve(f"{job.name}-{model}" if job.kind == "compare" else job.name, folder)
                return True
        return False

    def _hide_paths(self, text: str) -> str:
        """A text that clients may read: files have their names there, not their paths."""
        for path in (self.texts.folder, self.folder):
            text = text.replace(f"{path}{os.sep}", "").replace(f"{path.resolve()}{os.sep}", "")
        return text


def _append_line(path: Path, line: str) -> None:
    """Add a line to a file, whose last one may have been cut short."""
    with path.open("ab+") as file:
        if file.tell():
            file.seek(-1, os.SEEK_END)
            if file.read() != b"\n":
                file.write(b"\n")
        file.write(f"{line}\n".encode())


def _ask_to_stop(process: subprocess.Popen[bytes] | None) -> None:
    if process is not None and process.stdin is not None:
        with contextlib.suppress(OSError, ValueError):
            process.stdin.write(b"stop\n")
            process.stdin.flush()


@contextlib.contextmanager
def _explain_full_disk() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        what, remedy = describe_os_error(error)
        raise Refusal(503, f"The server cannot write: {what}. {remedy}.", code="cannot_write") from None


def describe_exit(job: Job, code: int) -> str:
    how = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
    hint = "The machine may be short of memory" if code == -9 else f"{HIDDEN}/jobs/{job.id}.log says more"
    return f"The training process {how}. {hint}. Resume the job: it continues from its last saved state."
