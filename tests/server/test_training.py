"""Training from the page, over HTTP: a real server, real workers, and what clients may and may not ask."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from nextword.cli import app
from nextword.cli.serve import find_runs, training_folder
from nextword.server.security import Access
from tests.support.running_server import KEY, Running, run_server, run_trainer
from tests.support.server_runs import UPLOAD

HEADERS = {"content-type": "application/json"}


@pytest.fixture(scope="module")
def trainer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with run_trainer(tmp_path_factory.mktemp("trainer") / "runs") as running:
        yield running


@pytest.fixture(scope="module")
def text(trainer: Running) -> str:
    return str(trainer.post("/api/texts", {"name": "A tale", "text": UPLOAD})["id"])


def get(server: Running, path: str, status: int = 200) -> Any:
    answer = server.client.get(path)
    assert answer.status_code == status, answer.text
    return answer.json()


def delete(server: Running, path: str, status: int = 200) -> Any:
    answer = server.client.request("DELETE", path, headers=HEADERS)
    assert answer.status_code == status, answer.text
    return answer.json()


def follow(server: Running, id: str, after: int = 0, until: str = "[DONE]") -> list[Any]:
    """The events of a job, up to the first of a kind."""
    events = []
    with server.client.stream("GET", f"/api/jobs/{id}/events?after={after}") as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        for line in answer.iter_lines():
            if line == "data: [DONE]":
                return events
            if line.startswith("data: "):
                events.append(json.loads(line.removeprefix("data: ")))
                if events[-1]["event"] == until:
                    return events
    raise AssertionError("the stream ended without [DONE]")


def test_server_without_models_answers(tmp_path: Path) -> None:
    with run_server({}, train=tmp_path / "runs") as empty:
        assert get(empty, "/health")["status"] == "ok"
        assert get(empty, "/v1/models")["data"] == []
        assert get(empty, "/api/comparisons") == {"comparisons": []}
        assert get(empty, "/api/jobs") == {"jobs": []}
        for path in ("/v1/models/x", "/m/x/v1/models", "/tokenizer_info"):
            assert get(empty, path, 404)["error"]["code"] == "no_model"
        for path, body in (("/api/next", {"text": "a"}), ("/v1/completions", {}), ("/m/x/api/score", {"texts": ["a"]})):
            assert empty.post(path, body, 404)["error"]["code"] == "no_model"
        assert not (tmp_path / "runs").exists()


@pytest.mark.timeout(300)
def test_training_is_watched_stopped_and_resumed(trainer: Running, text: str) -> None:
    body = {"kind": "train", "recipe": "lstm/tiny", "data": text, "minutes": 30, "name": "mine", "prompt": "the king"}
    job = trainer.post("/api/jobs", body)
    assert (job["state"], job["data"], job["models"]) == ("running", {"id": text, "name": "A tale"}, ["mine"])
    events = follow(trainer, job["id"], until="step")
    step = events[-1]
    assert {"model", "seq", "loss", "rate", "norm", "tokens_per_second", "seconds", "epoch"} <= step.keys()
    assert get(trainer, "/api/texts")["texts"][0]["used_by"] == [job["id"]]
    assert delete(trainer, f"/api/texts/{text}", 409)["error"]["code"] == "in_use"
    assert trainer.post(f"/api/jobs/{job['id']}/stop", {})["state"] in ("stopping", "stopped")
    rest = follow(trainer, job["id"], after=step["seq"])
    assert rest[0]["seq"] == step["seq"] + 1
    end = next(event for event in rest if event["event"] == "end")
    assert (end["reason"], rest[-1]["state"]) == ("interrupted", "stopped")
    trainer.post(f"/api/jobs/{job['id']}/resume", {})
    begin = follow(trainer, job["id"], after=rest[-1]["seq"], until="begin")[-1]
    assert begin["step"] == end["step"]
    trainer.post(f"/api/jobs/{job['id']}/stop", {})
    follow(trainer, job["id"])
    shown = get(trainer, f"/api/jobs/{job['id']}")
    assert (shown["state"], shown["can_resume"]) == ("stopped", True)
    assert delete(trainer, f"/api/jobs/{job['id']}?remove_run=true") == {"deleted": job["id"], "removed_run": True}
    get(trainer, f"/api/jobs/{job['id']}", 404)


@pytest.mark.timeout(300)
def test_comparison_is_drawn_live_and_its_models_answer(trainer: Running, text: str) -> None:
    body = {"kind": "compare", "models": ["ngram/tiny", "lstm/tiny"], "data": text, "minutes": 0.03, "name": "duel"}
    job = trainer.post("/api/jobs", body)
    assert job["comparison"] == "duel"
    served = follow(trainer, job["id"], until="served")[-1]
    assert served["id"] == "duel-ngram-tiny"
    assert trainer.post("/api/next", {"text": "the king", "model": served["id"]})["guesses"]
    part = get(trainer, "/api/comparisons/duel")
    assert part["names"] == ["ngram-tiny", "lstm-tiny"]
    assert {"ngram-tiny"} <= {row["name"] for row in part["models"]}
    events = follow(trainer, job["id"])
    assert {"status", "warning", "begin", "valid", "sample", "end", "comparison"} <= {
        event["event"] for event in events
    }
    (entry,) = get(trainer, "/api/comparisons")["comparisons"]
    assert (entry["name"], entry["data"], entry["done"], entry["is_running"]) == ("duel", "A tale", 2, False)
    answer = trainer.client.get("/api/comparisons/duel")
    shown = answer.json()
    assert shown["winner"] in shown["names"]
    assert shown["headline"].startswith("On A tale")
    assert {row["served"] for row in shown["models"]} == {"duel-ngram-tiny", "duel-lstm-tiny"}
    assert shown["passage"]["surprisal"].keys() == {"ngram-tiny", "lstm-tiny"}
    assert all(row["curve"] for row in shown["models"])
    everything = answer.text + trainer.client.get(f"/api/jobs/{job['id']}").text + json.dumps(events)
    assert str(trainer.service.jobs.folder) not in everything  # type: ignore[union-attr]
    assert "/tmp" not in everything
    get(trainer, "/api/comparisons/other", 404)
    report = trainer.client.get("/api/comparisons/duel/report")
    assert shown["has_report"]
    assert report.headers["content-type"].startswith("text/html")
    assert report.headers["content-security-policy"].startswith("sandbox allow-scripts; default-src 'none'")
    assert "duel" in report.text or "A tale" in report.text
    get(trainer, "/api/comparisons/other/report", 404)
    delete(trainer, f"/api/jobs/{job['id']}?remove_run=true")
    assert get(trainer, "/v1/models")["data"] == []


def test_what_can_be_trained_is_listed(trainer: Running, text: str) -> None:
    listed = get(trainer, "/api/recipes")
    recipes = {recipe["name"]: recipe for recipe in listed["recipes"]}
    assert {"ngram/small", "lstm/tiny", "bert/small", "seq2seq/tiny"} <= recipes.keys()
    assert not any(name.startswith(("tagger/", "cvt/")) for name in recipes)
    assert recipes["seq2seq/tiny"]["reads"] == "pairs"
    assert recipes["lstm/small"]["minutes"] == 3
    assert all(recipe["description"] and recipe["paper"] and recipe["minutes"] for recipe in recipes.values())
    assert listed["demo"]["kind"] == "compare"
    entries = get(trainer, "/api/texts")["texts"]
    assert entries[0]["id"] == text
    assert {"id", "name", "kind", "bytes", "built_in", "preview", "used_by"} == entries[0].keys()
    assert any(entry["built_in"] for entry in entries)


GOOD = {"kind": "train", "recipe": "lstm/tiny", "data": "python"}


@pytest.mark.parametrize(
    ("changes", "param"),
    [
        ({"kind": "transfer"}, "kind"),
        ({"recipe": "lstm/wikitext2"}, "recipe"),
        ({"recipe": "../../etc/passwd"}, "recipe"),
        ({"recipe": None}, "recipe"),
        ({"data": "no-such"}, "data"),
        ({"data": "/etc/passwd"}, "data"),
        ({"data": "text-../../etc"}, "data"),
        ({"data": "bible:kjv-web"}, "data"),
        ({"recipe": "seq2seq/tiny"}, "data"),
        ({"minutes": 0}, "minutes"),
        ({"minutes": 1e9}, "minutes"),
        ({"minutes": "3"}, "minutes"),
        ({"prompt": "x" * 401}, "prompt"),
        ({"name": ".."}, "name"),
        ({"name": "a/b"}, "name"),
        ({"name": "x" * 41}, "name"),
        ({"models": ["lstm/tiny"]}, "models"),
        ({"out": "/tmp/x"}, "out"),
        ({"kind": "compare"}, "recipe"),
        ({"kind": "compare", "recipe": None, "models": ["lstm/tiny"]}, "models"),
        ({"kind": "compare", "recipe": None, "models": ["lstm/tiny", "/etc"]}, "models"),
        ({"kind": "compare", "recipe": None, "models": ["lstm/tiny"] * 13}, "models"),
    ],
)
def test_bad_jobs_are_refused(trainer: Running, changes: dict[str, Any], param: str) -> None:
    answer = trainer.client.post("/api/jobs", json=GOOD | changes)
    assert answer.status_code in (400, 404), answer.text
    assert answer.json()["error"]["param"] == param
    assert get(trainer, "/api/jobs") == {"jobs": []}


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"name": "x", "text": ""}, "text"),
        ({"name": "x", "text": "\0" * 5000}, "text"),
        ({"name": "", "text": UPLOAD}, "name"),
        ({"name": "x" * 101, "text": UPLOAD}, "name"),
        ({"name": "x", "text": UPLOAD, "kind": "pdf"}, "kind"),
        ({"name": "x", "text": UPLOAD, "path": "/tmp"}, "path"),
    ],
)
def test_bad_texts_are_refused(trainer: Running, body: dict[str, Any], param: str) -> None:
    assert trainer.post("/api/texts", body, 400)["error"]["param"] == param


def test_unknown_jobs_and_wrong_queries_are_refused(trainer: Running) -> None:
    for path in ("/api/jobs/x", "/api/jobs/x/events"):
        assert get(trainer, path, 404)["error"]["code"] == "no_job"
    for path in ("/api/jobs/x/stop", "/api/jobs/x/resume"):
        trainer.post(path, {}, 404)
    delete(trainer, "/api/jobs/x", 404)
    delete(trainer, "/api/texts/x", 404)
    delete(trainer, "/api/texts/python", 409)
    get(trainer, "/api/jobs/x/events?after=-1", 400)


def test_other_pages_cannot_train(trainer: Running) -> None:
    """A form of another page can send neither JSON nor DELETE; the Host header must be that of this machine."""
    plain = {"content-type": "text/plain"}
    assert trainer.client.post("/api/jobs", content=json.dumps(GOOD), headers=plain).status_code == 415
    assert trainer.client.delete("/api/jobs/x").status_code == 415
    assert trainer.client.get("/api/jobs", headers={"host": "evil.example"}).status_code == 403


def test_training_is_for_this_machine(tmp_path: Path) -> None:
    with run_server({}, access=Access("0.0.0.0", KEY), train=tmp_path) as public, run_server({}) as untrained:
        for server in (public, untrained):
            for path in ("/api/recipes", "/api/texts", "/api/jobs", "/api/jobs/x", "/api/jobs/x/events"):
                assert get(server, path, 403)["error"]["code"] == "training_refused"
            assert server.post("/api/jobs", GOOD, 403)["error"]["code"] == "training_refused"
            assert get(server, "/api/comparisons") == {"comparisons": []}
    assert not list(tmp_path.iterdir())


def test_server_ends_while_a_job_is_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Streams of events do not hold up the end; the job is stopped, and the next server can resume it."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    with run_server({}, train=tmp_path / "runs") as first:
        text = first.post("/api/texts", {"name": "A tale", "text": UPLOAD})["id"]
        id = first.post("/api/jobs", {**GOOD, "data": text, "minutes": 30, "name": "mine"})["id"]
        with first.client.stream("GET", f"/api/jobs/{id}/events") as answer:
            lines = answer.iter_lines()
            assert next(lines).startswith("data: ")
            first.server.handle_exit(15, None)
            assert [line for line in lines if line][-1] == "data: [DONE]"
    with run_server({}, train=tmp_path / "runs") as second:
        shown = get(second, f"/api/jobs/{id}")
        assert (shown["state"], shown["can_resume"]) == ("stopped", True)


# ------------------------------------------------------------------------------------------------ the command


def test_runs_of_a_folder_are_found_at_any_depth(
    folders: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert find_runs([]) == {}
    for place in ("runs/ngram", "runs/demo/lstm", "runs/.hidden/gpt2"):
        shutil.copytree(folders[place.rsplit("/", 1)[-1]], tmp_path / place)
    assert find_runs([]) == {"ngram": Path("runs/ngram"), "demo-lstm": Path("runs/demo/lstm")}
    assert find_runs(["runs/demo"]) == {"lstm": Path("runs/demo/lstm")}
    assert [training_folder(runs) for runs in ([], ["runs/demo"], ["runs/ngram"])] == [
        Path("runs"),
        Path("runs/demo"),
        Path("runs"),
    ]
    assert CliRunner().invoke(app, ["serve", "nothing"]).exit_code == 1
