"""Jobs: one at a time, in a process of its own; whatever happens to it, its state is known and it can be resumed."""

from __future__ import annotations

import asyncio
import json
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from nextword.core.errors import NextwordError
from nextword.server import jobs as module
from nextword.server.comparisons import thin
from nextword.server.job_history import ACTIVE, Job, summarize_runs
from nextword.server.jobs import HIDDEN, Jobs
from nextword.server.security import Refusal
from tests.support import fake_worker
from tests.support.running_server import eventually

TEXT = {"id": "python", "name": "the Python reference"}
TALE = "".join(f"The king of {n} lands went to see house {n * n}.\n" for n in range(400))
SERVED: dict[str, Path] = {}


def serve(name: str, folder: Path) -> str:
    SERVED[name] = folder
    return name


def open_jobs(folder: Path) -> Jobs:
    return Jobs(folder, serve, lambda name: SERVED.pop(name, None) is not None)


@pytest.fixture
def jobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Jobs]:
    monkeypatch.setattr(module, "WORKER", [sys.executable, str(fake_worker.__file__)])
    SERVED.clear()
    jobs = open_jobs(tmp_path / "runs")
    yield jobs
    jobs.close()


def add(jobs: Jobs, order: str = "finish", name: str = "mine") -> str:
    return str(jobs.add("train", "lstm/tiny", (), TEXT, None, order, name)["id"])


def wait_for(jobs: Jobs, id: str, *states: str) -> dict[str, Any]:
    assert eventually(lambda: jobs.find(id)["state"] in states), jobs.find(id)
    return jobs.describe(id)


def wait_for_steps(jobs: Jobs, id: str) -> None:
    assert eventually(lambda: bool(jobs.describe(id)["runs"][0]["validations"]))


def refuse(call: Callable[[], object], status: int, code: str) -> str:
    with pytest.raises(Refusal) as error:
        call()
    assert (error.value.status, error.value.code) == (status, code)
    return error.value.message


def test_job_ends_with_the_history_of_its_run(jobs: Jobs) -> None:
    shown = wait_for(jobs, add(jobs), "finished")
    (run,) = shown["runs"]
    assert run["status"] == "done"
    assert [point["step"] for point in run["steps"]] == [1, 2, 3, 4, 5]
    assert run["validations"][0]["best"] is True
    assert run["samples"][0]["text"] == "b"
    assert run["result"]["bits_per_byte"] == 1.5
    assert shown["progress"] == 1.0
    assert shown["can_resume"] is False
    assert jobs.users_of("python") == []


def test_others_wait_in_a_bounded_queue(jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_QUEUED", 2)
    first = add(jobs, "wait")
    second, third = add(jobs), add(jobs)
    assert [jobs.find(id)["position"] for id in (first, second, third)] == [None, 1, 2]
    assert [job["name"] for job in jobs.overview()] == ["mine-3", "mine-2", "mine"]
    refuse(lambda: add(jobs), 429, "queue_full")
    assert jobs.stop(second)["state"] == "stopped"
    assert jobs.find(third)["position"] == 1
    wait_for_steps(jobs, first)
    jobs.stop(first)
    wait_for(jobs, first, "stopped")
    wait_for(jobs, third, "finished")
    monkeypatch.setattr(module, "MAX_JOBS", 3)
    refuse(lambda: add(jobs), 409, "too_many_jobs")


def test_stopped_job_resumes_and_replaces_what_it_repeats(jobs: Jobs) -> None:
    id = add(jobs, "wait")
    wait_for_steps(jobs, id)
    assert jobs.stop(id)["state"] == "stopping"
    before = wait_for(jobs, id, "stopped")
    assert before["runs"][0]["status"] == "stopped"
    refuse(lambda: jobs.stop(id), 409, "not_running")
    assert jobs.users_of("python") == [id]
    jobs.resume(id)
    refuse(lambda: jobs.resume(id), 409, "not_resumable")
    refuse(lambda: jobs.remove(id, False), 409, "running")
    assert eventually(lambda: jobs.describe(id)["runs"][0]["begin"]["step"] == 3)
    wait_for_steps(jobs, id)
    assert [point["step"] for point in jobs.describe(id)["runs"][0]["steps"]] == [1, 2, 3, 4, 5]


def test_crash_of_the_worker_is_told_and_loses_nothing(jobs: Jobs) -> None:
    id = add(jobs, "crash")
    shown = wait_for(jobs, id, "failed")
    assert "signal 9" in shown["error"]
    assert len(shown["runs"][0]["steps"]) == 5
    jobs.resume(id)
    wait_for(jobs, id, "failed")
    assert add(jobs)


def test_errors_name_no_paths(jobs: Jobs) -> None:
    shown = wait_for(jobs, add(jobs, "fail"), "failed")
    assert shown["error"] == "Cannot read mine/model: damaged."


def test_deaf_worker_is_killed_at_the_end(jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "END_SECONDS", 0.1)
    id = add(jobs, "deaf")
    wait_for_steps(jobs, id)
    jobs.close()
    assert jobs.find(id)["state"] == "stopped"
    refuse(lambda: add(jobs), 503, "draining")


def test_next_server_finds_the_jobs_stopped(jobs: Jobs) -> None:
    first, second = add(jobs, "wait"), add(jobs, "wait")
    wait_for_steps(jobs, first)
    refuse(lambda: add(open_jobs(jobs.folder)), 409, "folder_in_use")
    seq = jobs.find(first)["last_seq"]
    jobs.close()
    for id, state in ((first, "running"), (second, "queued")):  # as a killed server leaves them
        path = jobs.folder / HIDDEN / "jobs" / f"{id}.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | {"state": state, "last_seq": 1}))
    (jobs.place / f"{first}.jsonl").open("a").write('{"event": "st')
    (jobs.place / "damaged.json").write_text("{")
    restarted = open_jobs(jobs.folder)
    try:
        assert {restarted.find(id)["state"] for id in (first, second)} == {"stopped"}
        assert restarted.find(first)["last_seq"] > seq
        assert len(restarted.describe(first)["runs"][0]["steps"]) == 5
        restarted.resume(first)
        wait_for_steps(restarted, first)
        shown = restarted.describe(first)
    finally:
        restarted.close()
    assert restarted.find(first)["last_seq"] == len(restarted._read_events(restarted._jobs[first]))  # none is lost
    assert restarted.describe(first)["runs"][0]["steps"] == shown["runs"][0]["steps"]


def test_removed_job_keeps_its_run_unless_told(jobs: Jobs) -> None:
    kept, gone = add(jobs), add(jobs)
    wait_for(jobs, gone, "finished")
    wait_for(jobs, kept, "finished")
    assert jobs.remove(kept, False) is False
    assert (jobs.folder / "mine").is_dir()
    jobs._jobs[gone].served["mine-2"] = "busy"
    refuse(lambda: jobs.remove(gone, True), 409, "in_use")
    SERVED["busy"] = jobs.folder / "mine-2"
    assert jobs.remove(gone, True) is True
    assert not (jobs.folder / "mine-2").exists()
    assert jobs.overview() == []
    assert not list(jobs.place.iterdir())
    refuse(lambda: jobs.find(gone), 404, "no_job")


def test_run_that_a_comparison_reads_is_not_removed(jobs: Jobs) -> None:
    id = add(jobs)
    wait_for(jobs, id, "finished")
    comparison = Job("id", "compare", "both", None, ["mine"], [str(jobs.folder / "mine")], TEXT, 1.0, "", 0)
    jobs._jobs["id"] = comparison
    assert "both" in refuse(lambda: jobs.remove(id, True), 409, "in_use")
    comparison.state = "finished"
    assert jobs.remove(id, True) is True


def test_names_of_runs_that_are_gone_are_forgotten(jobs: Jobs) -> None:
    id = add(jobs)
    wait_for(jobs, id, "finished")
    jobs.close()
    path = jobs.place / f"{id}.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"served": {"mine": "another"}}))
    SERVED["another"] = Path("elsewhere")  # served under the name that the run once had
    restarted = open_jobs(jobs.folder)
    try:
        assert restarted.find(id)["served"] == []
        restarted.remove(id, True)
    finally:
        restarted.close()
    assert "another" in SERVED


def test_bug_in_the_server_does_not_hold_up_the_queue(jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    take = jobs._take

    def fail(active: Any, event: Any) -> None:
        if active.job.id == first:
            raise KeyError("seconds")
        take(active, event)

    monkeypatch.setattr(jobs, "_take", fail)
    first = add(jobs)
    second = add(jobs)
    assert "bug" in wait_for(jobs, first, "failed")["error"]
    wait_for(jobs, second, "finished")


def test_events_are_followed_from_anywhere(jobs: Jobs) -> None:
    id = add(jobs, "wait")

    async def follow(after: int) -> list[Any]:
        return [event async for event in jobs.follow(id, after)]

    async def follow_both() -> tuple[list[Any], list[Any]]:
        threading.Timer(0.1, lambda: (wait_for_steps(jobs, id), jobs.stop(id))).start()
        whole, rest = await asyncio.gather(follow(0), follow(4))
        return whole, rest

    whole, rest = asyncio.run(asyncio.wait_for(follow_both(), 60))
    assert [event["seq"] for event in whole] == list(range(1, len(whole) + 1))
    assert rest == whole[4:]
    assert whole[-1]["state"] == "stopped"
    assert asyncio.run(follow(0)) == whole  # from the file


def test_full_disk_does_not_end_a_job(jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(job: Job) -> None:
        raise OSError(28, "No space left on device")

    id = add(jobs, "wait")
    monkeypatch.setattr(jobs, "_save", fail)
    wait_for_steps(jobs, id)
    jobs.stop(id)
    wait_for(jobs, id, "stopped")
    assert "disk is full" in refuse(lambda: add(jobs), 503, "cannot_write")


def test_server_that_cannot_write_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    jobs = open_jobs(tmp_path / "file" / "runs")
    refuse(lambda: jobs.add("train", "lstm/tiny", (), TEXT, None, "", "x"), 503, "cannot_write")
    assert jobs.overview() == []


def test_server_of_a_folder_that_cannot_be_locked_begins_without_its_jobs(tmp_path: Path) -> None:
    (tmp_path / HIDDEN / "jobs").mkdir(parents=True)
    (tmp_path / HIDDEN / "lock").mkdir()
    jobs = open_jobs(tmp_path)
    assert jobs.overview() == []
    refuse(lambda: jobs.add("train", "lstm/tiny", (), TEXT, None, "", "x"), 503, "cannot_write")


def test_worker_gets_no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not [key for key in module.ENVIRONMENT if "KEY" in key or "TOKEN" in key]


# ------------------------------------------------------------------------------------------------ texts


def test_uploads_are_kept_by_their_content(jobs: Jobs) -> None:
    entry = jobs.add_text("../../etc/passwd", TALE, "text")
    again = jobs.add_text("other", "\ufeff" + TALE.replace("\n", "\r\n"), "text")
    assert entry == again
    assert entry["name"] == "../../etc/passwd"
    assert {path.name for path in jobs.texts.folder.iterdir()} == {f"{entry['id']}.txt", f"{entry['id']}.json"}
    assert jobs.texts.overview()[0] == entry
    assert {"python"} <= {entry["id"] for entry in jobs.texts.overview()[1:]}
    jobs.remove_text(entry["id"])
    assert not list(jobs.texts.folder.iterdir())
    refuse(lambda: jobs.remove_text(entry["id"]), 404, "no_text")
    refuse(lambda: jobs.remove_text("python"), 409, "built_in")


@pytest.mark.parametrize("damage", ["{", '{"name": "tale", "kind": "picture"}', ""])
def test_damaged_upload_is_left_out_until_it_comes_again(jobs: Jobs, damage: str) -> None:
    good, bad = jobs.add_text("good", TALE, "text"), jobs.add_text("bad", TALE * 2, "text")
    if damage:
        (jobs.texts.folder / f"{bad['id']}.json").write_text(damage)
    else:
        (jobs.texts.folder / f"{bad['id']}.txt").unlink()
    assert [entry["id"] for entry in jobs.texts.overview() if not entry["built_in"]] == [good["id"]]
    refuse(lambda: jobs.texts.find(bad["id"]), 404, "no_text")
    assert jobs.add_text("bad", TALE * 2, "text") == bad
    assert len([entry for entry in jobs.texts.overview() if not entry["built_in"]]) == 2


@pytest.mark.parametrize(
    ("text", "kind", "status"),
    [
        ("", "text", 400),
        (" \n" * 4000, "text", 400),
        ("short", "text", 400),
        (TALE[:500], "text", 400),
        ("\0" * 4000, "text", 400),
        ("\x01\x02\ufffd" * 4000, "text", 400),
        ("a" * 6_000_001, "text", 413),
        ("no tab\n" * 200, "pairs", 400),
        ("a\tb\tc\n" * 200, "pairs", 400),
        ("a\tb\n" * 20, "pairs", 400),
        ("BZh91AY" + "x" * 4000, "text", 400),
    ],
)
def test_unusable_texts_are_refused(jobs: Jobs, text: str, kind: str, status: int) -> None:
    with pytest.raises(Refusal) as error:
        jobs.add_text("name", text, kind)
    assert error.value.status == status
    assert error.value.param == "text"
    assert str(jobs.folder) not in error.value.message
    assert not list(jobs.texts.folder.glob("*"))


def test_text_of_an_unfinished_job_stays(jobs: Jobs) -> None:
    entry = jobs.add_text("tale", TALE, "text")
    id = str(jobs.add("train", "lstm/tiny", (), entry, None, "crash", "mine")["id"])
    wait_for(jobs, id, "failed")
    assert id in refuse(lambda: jobs.remove_text(entry["id"]), 409, "in_use")
    jobs.remove(id, True)
    jobs.remove_text(entry["id"])


# ------------------------------------------------------------------------------------------------ history


def test_histories_are_thinned(jobs: Jobs) -> None:
    job = Job("id", "train", "mine", None, ["mine"], [], TEXT, None, "", 0, "finished")
    assert job.state not in ACTIVE
    steps = [{"event": "step", "model": "mine", "step": i, "loss": 1.0, "seconds": i} for i in range(9000)]
    (run,) = summarize_runs(job, steps)["runs"]
    assert len(run["steps"]) == 1500
    assert (run["steps"][0]["step"], run["steps"][-1]["step"]) == (0, 8999)
    assert thin([1, 2, 3, 4, 5], 3) == [1, 3, 5]
    assert thin([1, 2], 3) == [1, 2]


def test_unusable_plans_are_errors(jobs: Jobs) -> None:
    with pytest.raises(NextwordError):
        jobs.add("compare", None, ["no/such"], TEXT, 1.0, "", "bad")
    assert jobs.overview() == []
