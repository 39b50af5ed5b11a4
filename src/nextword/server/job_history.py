"""What is known of a job: its record, which is saved, and the history of its runs, which its events tell."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from nextword.server.comparisons import thin

ACTIVE, RESUMABLE = ("queued", "running", "stopping"), ("stopped", "failed")
MAX_POINTS = {"steps": 1500, "validations": 300, "samples": 200}  # of all runs of a job
STEP_KEYS = ("phase", "step", "epoch", "seconds", "loss", "rate", "norm", "tokens_per_second", "train_bits_per_byte")
VALID_KEYS = ("phase", "step", "epoch", "seconds", "valid", "perplexity", "valid_bits_per_byte", "best")
SAMPLE_KEYS = ("step", "seconds", "final", "kind", "prompt", "text", "guesses", "reference")

Object = dict[str, Any]


@dataclass
class Job:
    """What was asked for, how far it is, and what it has made. All of it is saved."""

    id: str
    kind: str  # "train" or "compare"
    name: str  # of its folder
    recipe: str | None  # of kind train
    models: list[str]  # the names of its runs
    compared: list[str]  # of kind compare: recipes and run folders, as `nextword compare` takes them
    data: Object  # id and name of the text
    minutes: float | None
    prompt: str
    created: int
    state: str = "queued"
    error: str | None = None
    activity: str = ""
    current: str | None = None  # the run that is trained now
    progress: float | None = None
    seconds: float = 0.0
    served: dict[str, str] = field(default_factory=dict)  # run → its name in /v1/models
    last_seq: int = 0

    def note(self, event: Mapping[str, Any]) -> None:
        """Update what is shown of the job from an event."""
        self.last_seq = event["seq"]
        kind, model = event["event"], event.get("model")
        if model is not None:
            self.current = model
        if kind == "activity":
            self.activity = event["label"]
        elif kind == "status":
            self.activity = event["status"] if event["status"] in ("sizing", "scoring") else ""
        elif kind in ("begin", "step", "valid", "end"):
            self.activity, self.seconds = "training", event["seconds"]
            if kind == "begin":
                self.progress = 0.0
            elif kind == "step":
                self.progress = min(1.0, event["step"] / event["of"] if event.get("of") else event["epoch"])
            elif kind == "end" and event["reason"] != "interrupted":
                self.progress = 1.0
        elif kind == "state":
            self.state, self.error = event["state"], event["error"]
            if event["state"] not in ACTIVE:
                self.activity = ""


def summarize_runs(job: Job, events: Sequence[Object]) -> Object:
    """The runs of a job with their curves and samples, thinned for a chart; its warnings and headline."""
    runs = {name: _empty_run(name) for name in job.models}
    whole: Object = {"warnings": [], "headline": None, "winner": None}
    for event in events:
        kind, run = event["event"], runs.get(event.get("model") or "")
        if kind == "warning":
            whole["warnings"] = event["warnings"]
        elif kind == "comparison":
            whole |= {"headline": event["headline"], "winner": event["winner"]}
        elif run is not None:
            _add_event(run, event)
    for name, run in runs.items():
        run["served"] = job.served.get(name)
        if run["status"] in ("training", "scoring", "sizing") and job.state not in ACTIVE:
            run["status"] = job.state
        for key, most in MAX_POINTS.items():
            run[key] = thin(run[key], max(2, most // len(runs)))
    return whole | {"runs": list(runs.values())}


def _empty_run(name: str) -> Object:
    points: Object = {key: [] for key in MAX_POINTS}
    return {"name": name, "status": "waiting", "error": None, "begin": None, "end": None, "result": None, **points}


def _add_event(run: Object, event: Object) -> None:
    match event["event"]:
        case "begin":
            run |= {"begin": event, "end": None, "status": "training", "error": None}
            for key in MAX_POINTS:  # what comes after the state that training resumes from is computed again
                run[key] = [
                    point
                    for point in run[key]
                    if point["step"] <= event["step"] or point.get("phase", event["phase"]) != event["phase"]
                ]
        case "step" if "loss" in event:
            run["steps"].append({key: event[key] for key in STEP_KEYS if key in event})
        case "valid":
            run["validations"].append({key: event[key] for key in VALID_KEYS if key in event})
        case "sample":
            run["samples"].append({key: event[key] for key in SAMPLE_KEYS if key in event})
        case "end":
            run["end"] = event
        case "evaluate":
            run |= {"result": event, "status": "done"}
        case "status":
            run["status"] = event["status"]
            if event["row"] is not None:
                run |= {"result": event["row"], "error": event["row"].get("error")}
