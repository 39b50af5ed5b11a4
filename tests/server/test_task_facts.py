"""What /v1/models says about fine-tuned runs before they are loaded: what a form for them must ask."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.running_server import Running

PLAIN = {"labels": [], "is_pair": False, "is_numeric": False, "tasks": []}


@pytest.mark.parametrize(
    ("name", "kind", "facts"),
    [
        ("topics", "classification", {"labels": ["bad", "good"]}),
        ("tags", "tagging", {"labels": ["O", "S-LOC", "B-PER", "E-PER", "S-PER"]}),
        ("answers", "question_answering", {}),
        ("choices", "multiple_choice", {"is_pair": True}),
    ],
)
def test_runs_of_tasks_are_listed_with_labels_and_settings(
    server: Running, name: str, kind: str, facts: dict[str, Any]
) -> None:
    listed = server.client.get(f"/v1/models/{name}").json()["nextword"]
    assert listed["task"] == kind
    assert listed["task_settings"] == {**PLAIN, **facts}


def test_language_models_have_no_task_settings(server: Running) -> None:
    assert server.client.get("/v1/models/gpt2").json()["nextword"]["task_settings"] is None


def test_data_are_named_without_their_folder(server: Running) -> None:
    facts = {name: server.client.get(f"/v1/models/{name}").json()["nextword"] for name in ("gpt2", "topics", "answers")}
    assert {name: each["data"] for name, each in facts.items()} == {
        "gpt2": "text.txt",
        "topics": "topics.csv",
        "answers": "squad",
    }
