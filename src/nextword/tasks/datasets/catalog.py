"""Every task on labelled texts that is known by name, and where its files lie on this machine.

| file         | tasks                                                       |
| ------------ | ----------------------------------------------------------- |
| glue.py      | CoLA SST-2 MRPC STS-B QQP MNLI QNLI RTE WNLI                |
| inference.py | SNLI SciTail                                                |
| sentences.py | SST-binary SST-fine TREC-6 TREC-50                          |
| reviews.py   | IMDb AG-News DBpedia Yelp-2 Yelp-5                          |
| choices.py   | RACE RACE-middle RACE-high Story-Cloze SWAG                 |

Each is one `Task` (task.py). Tags of words are learnt from the sets that the catalog of data calls tagging
(corpora/catalog.toml); what is asked of a language model in words is in evaluation/tasks.
"""

from __future__ import annotations

from difflib import get_close_matches
from pathlib import Path

from nextword.core.errors import NextwordError
from nextword.data.catalog import Entry, data_home, find, shared_folders
from nextword.data.text_to_text import is_tasks
from nextword.tasks.datasets import glue
from nextword.tasks.datasets import multiple_choice as choices
from nextword.tasks.datasets import nli as inference
from nextword.tasks.datasets import sentiment as reviews
from nextword.tasks.datasets import sentiment as sentences
from nextword.tasks.datasets.base import Task
from nextword.tasks.datasets.sentiment import place_in_catalog

TASKS: dict[str, Task] = {
    task.name: task
    for task in (
        *glue.TASKS,
        *inference.TASKS,
        *sentences.SENTENCE_TASKS,
        *reviews.REVIEW_TASKS,
        *choices.TASKS,
    )
}


def find_task(name: str) -> Task | None:
    """By name, `RTE`, `rte` or `glue/RTE`; a file of that name in this folder is meant as a file."""
    plain = name.lower().removeprefix("glue/")
    found = {
        key: task
        for task in TASKS.values()
        for name_of in (task.name.lower(), *task.aliases)
        for key in (name_of, name_of.replace("-", ""))
    }
    return None if Path(name).is_file() else found.get(plain)


def entry_of(task: Task) -> Entry | None:
    """What the catalog of data has for a task: those without a name of their own there are GLUE's."""
    return find(task.catalog or f"glue/{task.name}")


def place_of(task: Task) -> Path:
    """The folder of a task's files: in the data home, then in each folder of $NEXTWORD_DATA."""
    if task.catalog:
        return place_in_catalog(task.catalog)
    entry = entry_of(task)
    others = (entry.name, *entry.aliases) if entry else ()
    looked = []
    for home in (data_home(), *shared_folders()):
        for name in dict.fromkeys((f"glue/{task.name}", f"GLUE/{task.name}", task.name, *others)):
            folder = home / name
            looked.append(folder)
            if any((folder / file).is_file() for file in task.files):
                return folder
    raise NextwordError(
        f"{task.name} ({task.title}) is not on this machine. Its home is https://gluebenchmark.com/tasks. Put its "
        f"folder at {looked[0]}, or into a folder named in $NEXTWORD_DATA, as glue/{task.name}."
    )


def is_here(task: Task) -> bool:
    try:
        place_of(task)
    except NextwordError:
        return False
    return True


def unknown(name: str) -> NextwordError:
    """What to do about a name that is no task of labelled texts: it may be one of another kind."""
    entry = find(name)
    if entry is not None and entry.kind == "tagging":
        return NextwordError(
            f"{entry.name} has tags of words. Take a recipe that learns those: nextword transfer bert/tag --from RUN "
            f"--data {entry.name}."
        )
    if entry is not None and (entry.is_text or entry.kind == "choice"):
        return NextwordError(
            f"{entry.name} ({entry.title}) is no set of labelled texts. What can be asked of a language model is "
            "listed by `nextword evaluate --tasks`."
        )
    if is_tasks(name) or (entry is not None and entry.kind == "translation"):
        return NextwordError(
            f"{name} are texts that are made of texts: nextword train t5/tasks --data {name} (from a run: --set "
            "phase.0.init=RUN). Labels of texts are written by t5/finetune too."
        )
    near = get_close_matches(name.lower(), [one.lower() for one in TASKS], 1)
    hint = f" Did you mean {next(one for one in TASKS if one.lower() == near[0])}?" if near else ""
    return NextwordError(
        f"--data {name} is neither a file or folder nor a task that is known here.{hint} Tasks: {', '.join(TASKS)}, or "
        "glue for a suite of five; or give a csv, tsv or jsonl file."
    )
