"""The page Train in a browser: what is started is watched, stopped, resumed, and used."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.browser import Browser
from tests.support.running_server import Running, run_server, run_trainer
from tests.support.server_runs import UPLOAD


@pytest.fixture(scope="module")
def trainer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with run_trainer(tmp_path_factory.mktemp("trainer") / "runs") as running:
        yield running


def badge(browser: Browser) -> str:
    """The state of the job that is shown."""
    return "".join(browser.texts(".job-head .badge"))


def start(browser: Browser, recipe: str, minutes: str, name: str) -> None:
    """Fill in the form for one model, and send it."""
    browser.wait_for("document.querySelector('nw-training-form form') !== null")
    browser.run("document.querySelector('details.new').open = true; document.querySelector('#kind-train').click()")
    for field, value in (("data", "own"), ("recipe", recipe)):
        browser.fill(f"[data-field={field}]", value)
    browser.fill("[data-field=text]", UPLOAD)
    browser.fill("[data-field=text-name]", "A tale")
    for field, value in (("minutes", minutes), ("prompt", "the king"), ("name", name)):
        browser.fill(f"[data-field={field}]", value)
    browser.run("document.querySelector('.training-form [type=submit]').click()")  # what is above it may still grow


def test_server_without_models_opens_with_the_demo(browser: Browser, trainer: Running) -> None:
    browser.open(address=trainer.address)
    assert browser.texts("main h1") == ["Train, and watch it learn"]
    assert "4 min" in browser.texts("button.big")[0]
    assert browser.count(".hero li") == 4
    assert trainer.client.get("/api/jobs").json() == {"jobs": []}


@pytest.mark.timeout(300)
def test_training_is_watched_until_its_model_can_be_used(browser: Browser, trainer: Running) -> None:
    browser.open("train", address=trainer.address)
    start(browser, "lstm/tiny", "0.05", "mine")
    browser.wait_for(lambda: badge(browser) == "running", 60)
    browser.wait_for("document.querySelector('.samples li') !== null", 90)
    browser.wait_for(lambda: badge(browser) == "finished", 120)
    browser.wait_for("document.querySelector('.next-steps a') !== null")
    (job,) = trainer.client.get("/api/jobs").json()["jobs"]
    detail = trainer.client.get(f"/api/jobs/{job['id']}").json()
    (run,) = detail["runs"]
    samples = browser.texts(".samples li .text")
    assert samples[0] == run["samples"][-1]["prompt"] + run["samples"][-1]["text"].rstrip()
    browser.click("nw-job > section nw-line-chart summary")
    browser.wait_for("document.querySelectorAll('nw-job > section nw-line-chart tbody tr').length > 1")
    best = [point["valid_bits_per_byte"] for point in run["validations"]]
    assert f"{best[-1]:.2f}" in browser.texts("nw-job > section nw-line-chart .readout")[0]
    shown = (samples, browser.texts(".readout"), badge(browser))
    browser.open_file(browser.save_html())
    browser.wait_for("document.querySelector('.samples li') !== null")
    assert (browser.texts(".samples li .text"), browser.texts(".readout"), badge(browser)) == shown
    browser.open("train", address=trainer.address, job=job["id"])
    browser.click(".next-steps a", "Type")
    browser.wait_for("document.querySelectorAll('.card[data-model=mine] .bars li').length > 0")


@pytest.mark.timeout(300)
def test_training_is_stopped_found_again_after_a_reload_and_resumed(browser: Browser, trainer: Running) -> None:
    browser.open("train", address=trainer.address)
    start(browser, "lstm/tiny", "30", "long")
    browser.wait_for("document.querySelector('.job-head .badge')?.textContent === 'running'", 60)
    browser.wait_for("document.querySelector('nw-job .readout b') !== null", 90)
    browser.driver.refresh()
    browser.wait_for(lambda: badge(browser) == "running")
    browser.click(".actions button", "Stop")
    browser.wait_for(lambda: badge(browser) == "stopped", 90)
    browser.click(".actions button", "Resume")
    browser.wait_for(lambda: badge(browser) == "running", 60)
    browser.click(".actions button", "Stop")
    browser.wait_for(lambda: badge(browser) == "stopped", 90)
    browser.run("window.confirm = () => true")
    browser.click(".actions button", "Delete")
    browser.wait_for("![...document.querySelectorAll('.jobs th')].some((each) => each.textContent === 'long')")
    assert "long" not in [job["name"] for job in trainer.client.get("/api/jobs").json()["jobs"]]


def test_text_that_is_refused_is_explained(browser: Browser, trainer: Running) -> None:
    browser.expect_console_errors("status of 4")
    browser.open("train", address=trainer.address)
    browser.run("document.querySelector('details.new').open = true")
    browser.fill("[data-field=data]", "own")
    browser.click(".training-form [type=submit]")
    assert browser.texts(".submit [role=alert]") == ["Paste a text, or choose a file."]
    browser.fill("[data-field=text]", "too short")
    browser.click(".training-form [type=submit]")
    browser.wait_for("document.querySelector('.submit [role=alert]').textContent.includes('characters')")


def test_server_that_does_not_train_says_why(browser: Browser) -> None:
    browser.expect_console_errors("status of 403")
    with run_server({}) as server:
        browser.open("train", address=server.address)
        browser.wait_for("document.querySelector('.notice.error') !== null")
        assert browser.run("return document.querySelector('details.new').hidden")
