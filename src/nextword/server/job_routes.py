"""Routes of the page Train: texts, jobs and their events; and comparisons, which may still be running.

Training is for the user of this machine: on other addresses than the loopback, and after --no-train, all routes but
those of comparisons answer 403, and so does the report of a comparison.
"""

from __future__ import annotations

import sys
from contextlib import AsyncExitStack
from functools import cache, partial
from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Response
from starlette.responses import HTMLResponse

from nextword.comparison.compare import REPORT
from nextword.core.errors import NextwordError, invalid
from nextword.data.builtin import default_name
from nextword.html.page import CONTENT_POLICY
from nextword.models import abilities, model_class, title
from nextword.objectives import trains_on_pairs
from nextword.recipe import Recipe, load_recipe, recipe_names, short_authors
from nextword.run_folder import is_run
from nextword.server import jobs, schema, texts
from nextword.server.comparisons import find_comparisons, read_comparison
from nextword.server.job_history import ACTIVE
from nextword.server.jobs import Jobs
from nextword.server.replies import STREAMS, EventStream, JsonRoute, ServiceOf, reply
from nextword.server.schema import JobBody, TextBody
from nextword.server.security import Refusal
from nextword.server.service import Service

SIZES = ("tiny", "small")
MINUTES = {"tiny": 0.3, "small": 1.0}  # of recipes without a budget in minutes, about
COMPARE_MINUTES = 4.0
REPORT_POLICY = f"sandbox allow-scripts; {CONTENT_POLICY}"  # its script has an origin of its own, so it reads no answer
PAGE: dict[int | str, dict[str, Any]] = {200: {"content": {"text/html": {}}, "description": "The page."}}

Object = dict[str, Any]  # a JSON object
router = APIRouter(prefix="/api", route_class=JsonRoute, tags=["training"])


def _get_jobs(service: ServiceOf) -> Jobs:
    if service.jobs is None:
        problem = "This server does not train. It would on the loopback (--host 127.0.0.1) and without --no-train."
        raise Refusal(403, problem, code="training_refused")
    return service.jobs


JobsOf = Annotated[Jobs, Depends(_get_jobs)]


# ------------------------------------------------------------------------------------------------ recipes


@cache
def offered_recipes() -> dict[str, Recipe]:
    """Recipes for plain text or pairs that take seconds or minutes on two CPU cores, by name."""
    names = [name for name in recipe_names() if name.rsplit("/", 1)[-1] in SIZES]
    return {name: recipe for name in names if (recipe := load_recipe(name)).task is None}


def _reads(recipe: Recipe) -> texts.Kind:
    return "pairs" if trains_on_pairs(recipe.phases[0].objective) else "text"


def _describe_recipe(recipe: Recipe) -> Object:
    slug, size = recipe.name.split("/")
    cls = model_class(slug)
    paper = f"{recipe.paper['title']} ({short_authors(recipe.paper['authors'])} {recipe.paper['year']})"
    return {
        "name": recipe.name,
        "slug": slug,
        "size": size,
        "title": title(slug),
        "paper": paper,
        "description": (sys.modules[cls.__module__].__doc__ or "").partition("\n")[0],
        "reads": _reads(recipe),
        "minutes": sum(phase.minutes for phase in recipe.phases) or MINUTES[size],
        "has_budget": recipe.phases[0].kind == "gradient",
        "can": sorted(abilities(cls, recipe.model)),
        "in_ladder": bool(recipe.compare),
    }


@router.get("/recipes", summary="What can be trained")
async def list_recipes(service: ServiceOf, _: JobsOf) -> Response:
    """Recipes, the job that trains the demo, and limits."""
    limits = {
        "minutes": schema.MAX_MINUTES,
        "text": texts.MAX_TEXT,
        "texts": texts.MAX_UPLOADS,
        "jobs": jobs.MAX_JOBS,
        "queue": jobs.MAX_QUEUED,
        "models": schema.MAX_COMPARED,
        "prompt": schema.MAX_PROMPT,
        "name": schema.MAX_JOB_NAME,
    }
    demo = {"kind": "compare", "data": default_name(), "minutes": COMPARE_MINUTES, "name": "demo"}

    def describe(_: object) -> Object:
        recipes = [_describe_recipe(recipe) for recipe in offered_recipes().values()]
        return {"recipes": recipes, "demo": demo, "limits": limits}

    return await reply(service, await service.in_thread(describe, None))


# ------------------------------------------------------------------------------------------------ texts


@router.get("/texts", summary="Texts to train on")
async def list_texts(service: ServiceOf, jobs: JobsOf) -> Response:
    """Uploads, newest first, and built-in corpora."""

    def describe(_: object) -> Object:
        return {"texts": [entry | {"used_by": jobs.users_of(entry["id"])} for entry in jobs.texts.overview()]}

    return await reply(service, await service.in_thread(describe, None))


@router.post("/texts", summary="Upload a text")
async def add_text(service: ServiceOf, jobs: JobsOf, body: TextBody) -> Response:
    """Save a text on the server's machine. The same text again gets the same id."""
    entry = await service.in_thread(lambda b: jobs.add_text(b.name, b.text, b.kind), body)
    return await reply(service, entry | {"used_by": jobs.users_of(entry["id"])})


@router.delete("/texts/{id}", summary="Delete an upload")
async def delete_text(service: ServiceOf, jobs: JobsOf, id: str) -> Response:
    """Delete an upload that no unfinished job needs."""
    await service.in_thread(jobs.remove_text, id)
    return await reply(service, {"deleted": id})


# ------------------------------------------------------------------------------------------------ jobs


@router.post("/jobs", summary="Train or compare")
async def add_job(service: ServiceOf, jobs: JobsOf, body: JobBody) -> Response:
    """Begin a job, or let it wait until those before it have ended."""
    return await reply(service, await service.in_thread(partial(_add_job, service, jobs), body))


def _add_job(service: Service, jobs: Jobs, body: JobBody) -> Object:
    text = jobs.texts.find(body.data)
    if body.kind == "train":
        if body.models is not None:
            raise invalid("models", body.models[:3], "is for comparisons. Set recipe.")
        if body.recipe not in offered_recipes():
            raise invalid("recipe", body.recipe, "is not offered. GET /api/recipes lists what is.")
        _check_kind(offered_recipes()[body.recipe], text)
        name = body.name or body.recipe.replace("/", "-")
        return jobs.add("train", body.recipe, (), text, body.minutes, body.prompt, name)
    if body.recipe is not None:
        raise invalid("recipe", body.recipe, "is for training. Set models, or leave it out.")
    if body.models is None and text["kind"] == "pairs":
        raise invalid("models", "the default", "reads plain text. Name recipes that read pairs.")
    compared = [_find_compared(service, name, text) for name in dict.fromkeys(body.models or ())]
    if len(compared) == 1:
        raise invalid("models", body.models, "must be two or more models.")
    minutes = body.minutes or COMPARE_MINUTES
    return jobs.add("compare", None, compared, text, minutes, body.prompt, body.name or "comparison")


def _find_compared(service: Service, name: str, text: Object) -> str:
    """A recipe, or the folder of a served model."""
    if name in service.pool.folders:
        folder = service.pool.folders[name]
        return str(folder.absolute() if folder.exists() else folder) if is_run(folder) else name
    if name not in offered_recipes():
        raise invalid("models", name, "is neither a recipe of GET /api/recipes nor a served model.")
    _check_kind(offered_recipes()[name], text)
    return name


def _check_kind(recipe: Recipe, text: Object) -> None:
    if _reads(recipe) != text["kind"]:
        need = "pairs of a source and a target" if _reads(recipe) == "pairs" else "plain text"
        raise invalid("data", text["id"], f"does not fit: {recipe.name} reads {need}.")


@router.get("/jobs", summary="List the jobs")
async def list_jobs(service: ServiceOf, jobs: JobsOf) -> Response:
    """All jobs, newest first."""
    return await reply(service, {"jobs": jobs.overview()})


@router.get("/jobs/{id}", summary="Show a job")
async def show_job(service: ServiceOf, jobs: JobsOf, id: str) -> Response:
    """A job with its curves and samples, of at most 2,000 points."""
    return await reply(service, await service.in_thread(jobs.describe, id))


@router.get("/jobs/{id}/events", summary="Follow a job", responses=STREAMS)
async def follow_job(
    service: ServiceOf,
    jobs: JobsOf,
    id: str,
    after: Annotated[int, Query(ge=0, le=schema.MAX_ID, description="The number of the last event received.")] = 0,
) -> Response:
    """The events of a job as they happen, until it ends; those after a number, to go on with a broken stream."""
    jobs.find(id)
    return EventStream(service, jobs.follow(id, after), AsyncExitStack())


@router.post("/jobs/{id}/stop", summary="Stop a job")
async def stop_job(service: ServiceOf, jobs: JobsOf, id: str) -> Response:
    """End a job after its current step, with its state saved."""
    return await reply(service, await service.in_thread(jobs.stop, id))


@router.post("/jobs/{id}/resume", summary="Resume a job")
async def resume_job(service: ServiceOf, jobs: JobsOf, id: str) -> Response:
    """Continue a job that was stopped or has failed, bit-exactly."""
    return await reply(service, await service.in_thread(jobs.resume, id))


@router.delete("/jobs/{id}", summary="Delete a job")
async def delete_job(
    service: ServiceOf,
    jobs: JobsOf,
    id: str,
    remove_run: Annotated[
        bool, Query(description="Delete also what it has trained, and serve that no longer.")
    ] = False,
) -> Response:
    """Forget a job that has ended."""
    removed = await service.in_thread(lambda id: jobs.remove(id, remove_run), id)
    return await reply(service, {"deleted": id, "removed_run": removed})


# ------------------------------------------------------------------------------------------------ comparisons


@router.get("/comparisons", summary="List the comparisons")
async def list_comparisons(service: ServiceOf) -> Response:
    """Comparisons whose models are served, and those of jobs."""
    return await reply(service, await service.in_thread(_list_comparisons, service))


def _list_comparisons(service: Service) -> Object:
    entries = []
    for name, folder in _find_comparisons(service).items():
        try:
            shown = _read_comparison(service, name, folder)
        except (NextwordError, OSError, LookupError, TypeError):  # damaged, or of another version
            continue
        entries.append(
            {key: shown[key] for key in ("name", "job", "is_running", "winner", "created")}
            | {
                "data": shown["data"]["name"],
                "minutes": shown["budget"]["minutes"],
                "models": shown["names"],
                "done": sum(row["status"] == "done" for row in shown["models"]),
            }
        )
    return {"comparisons": entries}


@router.get("/comparisons/{name}", summary="Show a comparison")
async def show_comparison(service: ServiceOf, name: str) -> Response:
    """What `nextword compare --json` prints, also while the comparison runs."""
    return await reply(service, await service.in_thread(partial(_show_comparison, service), name))


@router.get("/comparisons/{name}/report", summary="The report of a comparison", responses=PAGE)
async def show_report(service: ServiceOf, _: JobsOf, name: str) -> Response:
    """The page that `nextword compare` writes at its end. It names folders of this machine, so it is for its user."""
    file = _folder_of(service, name) / REPORT
    if not file.is_file():
        raise Refusal(404, f"The comparison {name[:80]} has no report yet. It is written at the end.", code="no_report")
    page = await service.in_thread(Path.read_bytes, file)
    return HTMLResponse(page, headers={"content-security-policy": REPORT_POLICY})


def _find_comparisons(service: Service) -> dict[str, Path]:
    return find_comparisons(service.pool.folders, service.jobs.folders() if service.jobs else {})


def _folder_of(service: Service, name: str) -> Path:
    folders = _find_comparisons(service)
    if name not in folders:
        known = ", ".join(folders) or "none yet"
        raise Refusal(404, f"There is no comparison {name[:80]!r}. There are: {known}.", code="no_comparison")
    return folders[name]


def _show_comparison(service: Service, name: str) -> Object:
    return _read_comparison(service, name, _folder_of(service, name))


def _read_comparison(service: Service, name: str, folder: Path) -> Object:
    job = service.jobs.find_by_name(name) if service.jobs else None
    shown = read_comparison(folder, service.pool.folders, job["data"]["name"] if job else "")
    is_running = job is not None and job["state"] in ACTIVE
    facts = {"name": name, "job": job["id"] if job else None, "is_running": is_running}
    return facts | {"has_report": service.jobs is not None and (folder / REPORT).is_file(), **shown}
