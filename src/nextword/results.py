"""What the functions of nextword return: values for programs, with a line of text and a table for people.

    Run                 a run folder: what it is, how good, how large; `.model` opens it
    EvaluationResult    the numbers of one evaluation
    TransferResult      fine-tuned runs with their scores and baselines; `.model.predict(texts)`
    Predictions         a list of predictions, shown as a table
    Paper               a model of the canon with its recipes

`ComparisonResult` is in comparison/result.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nextword.core.errors import NextwordError, Unsupported, as_keywords
from nextword.core.io import format_number
from nextword.core.types import Prediction
from nextword.data.frames import NAME, is_saved_frame
from nextword.html.formatting import format_count, format_duration, format_size
from nextword.html.notebook import facts_html, table_html
from nextword.run_folder import INITIAL_FILES, RunFolder

if TYPE_CHECKING:
    from nextword.lm.base import TextModel
    from nextword.recipe import Recipe
    from nextword.tasks.finetune import Outcome
    from nextword.tasks.suite import FineTuning

REPORT = "report.html"
MAX_SHOWN = 20  # rows of a table in a notebook
MAX_TEXT = 80  # characters of an example there
NUMBERS = {
    "bits_per_byte": "bits per byte",
    "word_perplexity": "word perplexity",
    "token_perplexity": "token perplexity",
}
DIGITS = {"bits_per_byte": 4}  # of a number, where not 2

# ------------------------------------------------------------------------------------------------ evaluations


@dataclass(frozen=True, repr=False)
class EvaluationResult:
    """What `evaluate` returns. `values` is the result as in log.jsonl; its main numbers are also attributes."""

    values: Mapping[str, Any]

    @property
    def bits_per_byte(self) -> float | None:
        return self.values.get("bits_per_byte")

    @property
    def word_perplexity(self) -> float | None:
        return self.values.get("word_perplexity")

    @property
    def token_perplexity(self) -> float | None:
        return self.values.get("token_perplexity")

    @property
    def scores(self) -> Mapping[str, float]:
        """BLEU, ROUGE and other metrics of generated texts, by name."""
        return {name: score["score"] for name, score in self.values.get("scores", {}).items()}

    @property
    def best_score(self) -> str:
        """The main number, with its unit: "1.3160 bits per byte"."""
        if self.scores:
            return ", ".join(f"{name} {score:.2f}" for name, score in self.scores.items())
        for key, unit in NUMBERS.items():
            if self.values.get(key) is not None:
                number = format_number(self.values[key], DIGITS.get(key, 2))
                return f"{number} {unit}" if key == "bits_per_byte" else f"{unit} {number}"
        return ""

    @property
    def _place(self) -> str:
        place = f"{self.values['data']} {self.values['split']}" if "split" in self.values else ""
        return as_keywords(place)

    def __repr__(self) -> str:
        place = f" on {self._place}" if self._place else ""
        return f"EvaluationResult({self.best_score or 'no scores'}{place})"

    def _repr_html_(self) -> str:
        numbers = [
            (unit, format_number(self.values[key], DIGITS.get(key, 2)))
            for key, unit in NUMBERS.items()
            if self.values.get(key) is not None
        ]
        low, high = self.values.get("bits_per_byte_low"), self.values.get("bits_per_byte_high")
        interval = [("95 % interval", f"{low:.4f}–{high:.4f}")] if low is not None and high is not None else []
        scores = [(name, f"{score:.2f}") for name, score in self.scores.items()]
        return facts_html("Evaluation", [("data", self._place), *scores, *numbers, *interval])


# ------------------------------------------------------------------------------------------------ runs


class Run:
    """A run folder: its recipe, status, scores and size; `run.model` opens it.

        run = nextword.train("lstm/tiny", data="my.txt")
        run.evaluation.bits_per_byte
        run.model.generate("The").text

    A run is accepted wherever the path of a run folder is.
    """

    def __init__(self, path: str | Path, evaluation: EvaluationResult | None = None) -> None:
        self.path = Path(path)
        self._evaluation = evaluation

    def __fspath__(self) -> str:
        return str(self.path)

    def __str__(self) -> str:
        return str(self.path)

    @cached_property
    def folder(self) -> RunFolder:
        """The files: manifest, log, state."""
        return RunFolder.open(self.path)

    @property
    def recipe(self) -> Recipe:
        """The recipe with all of its settings."""
        return self.folder.recipe

    @property
    def is_finished(self) -> bool:
        """Whether training has ended. If not, continue with train(resume=True, out=run) or transfer(…)."""
        return self.folder.is_finished

    @property
    def status(self) -> str:
        """ "finished" or "unfinished"."""
        return "finished" if self.is_finished else "unfinished"

    @property
    def evaluation(self) -> EvaluationResult | None:
        """The last evaluation on held-out text; None if there is none."""
        from nextword.model_card import last_evaluation, last_translated

        if self._evaluation is None:
            values = last_evaluation(self.folder) or last_translated(self.folder)
            return EvaluationResult(values) if values else None
        return self._evaluation

    @property
    def scores(self) -> Mapping[str, float]:
        """The dev scores of a task, or the numbers of the last evaluation, by name."""
        result = self.folder.manifest.get("result")
        if result:
            return dict(result["dev"])
        evaluation = self.evaluation
        if evaluation is None:
            return {}
        numbers = {key: evaluation.values[key] for key in NUMBERS if evaluation.values.get(key) is not None}
        return {**evaluation.scores, **numbers}

    @property
    def best_score(self) -> str:
        """The main number with its name: "1.3160 bits per byte", "accuracy 88.9 %"."""
        result = self.folder.manifest.get("result")
        if result:
            value = result["dev"].get(result["metric"])
            return f"{result['metric']} {format_number(None if value is None else 100 * value, 1)}"
        return self.evaluation.best_score if self.evaluation else ""

    @property
    def parameters(self) -> int | None:
        """Weights of the model; None before training has ended."""
        return self.folder.manifest.get("parameters")

    @property
    def size(self) -> int:
        """Bytes of the model's files."""
        names = set(self.folder.manifest.get("files", {})) - set(INITIAL_FILES)
        return sum((self.path / name).stat().st_size for name in names if (self.path / name).is_file())

    @property
    def minutes(self) -> float:
        """Training time of all phases so far."""
        seconds: dict[int, float] = {}  # of each phase, which every event counts from its beginning
        for event in self.folder.read_log():
            if "seconds" in event and "phase" in event:
                seconds[event.get("index", 0)] = event["seconds"]
        return sum(seconds.values()) / 60

    @property
    def history(self) -> list[dict[str, Any]]:
        """Every validation, as one dictionary: pandas.DataFrame(run.history) is the learning curve."""
        return [event for event in self.folder.read_log() if event.get("event") == "valid"]

    @cached_property
    def model(self) -> TextModel:
        """The trained model, opened once."""
        return self.load()

    def load(self, device: str = "auto", precision: str = "fp32") -> TextModel:
        """Open the trained model on a device, in a precision."""
        from nextword.lm.loading import load

        model: TextModel = load(self.path, device, precision)
        return model

    def verify(self) -> None:
        """Read every file to its end and compare it with its checksum; RunError if one was changed or is missing.

        Opening a model does the same, except for large n-gram files that were verified before and look unchanged.
        """
        self.folder.verify(again=True)

    def summary(self) -> dict[str, Any]:
        """The facts as one dictionary, as in `nextword runs --json`."""
        from nextword.model_card import last_evaluation

        manifest, result = self.folder.manifest, last_evaluation(self.folder) or {}
        task = manifest.get("result", {})
        return {
            "run": str(self.path),
            "slug": manifest.get("slug"),
            "recipe": manifest.get("recipe"),
            "data": result.get("data") or task.get("data"),
            "split": result.get("split"),
            **({"task": task["dev"]} if task else {}),
            "bits_per_byte": result.get("bits_per_byte"),
            "word_perplexity": result.get("word_perplexity"),
            "token_perplexity": result.get("token_perplexity"),
            "parameters": manifest.get("parameters"),
            "size": self.size,
            "status": self.status,
        }

    def _facts(self) -> list[tuple[str, str]]:
        parameters = self.parameters
        status = self.status
        if not self.is_finished:
            command = "train" if self.recipe.task is None else "transfer"
            status += f": nextword.{command}(resume=True, out={str(self.path)!r})"
        return [
            ("recipe", str(self.folder.manifest.get("recipe", ""))),
            ("status", status),
            ("score", self.best_score),
            ("parameters", format_count(parameters) if parameters else ""),
            ("size", format_size(self.size) if self.size else ""),
            ("training", format_duration(60 * self.minutes)),
        ]

    def __repr__(self) -> str:
        try:
            facts = self._facts()
        except NextwordError as error:
            return f"Run({str(self.path)!r}: {error})"
        shown = [f"{value} parameters" if name == "parameters" else value for name, value in facts if value]
        return f"Run({str(self.path)!r}: {', '.join(shown)})"

    def _repr_html_(self) -> str:
        try:
            return facts_html(f"Run {self.path}", self._facts())
        except NextwordError as error:
            return facts_html(f"Run {self.path}", [("error", error)])


class Runs(list[Run]):
    """Run folders, shown as a table, or in a terminal one per line."""

    def __repr__(self) -> str:
        return "\n".join(map(repr, self)) or "Runs(none)"

    def _repr_html_(self) -> str:
        rows = []
        for run in self:
            try:
                rows.append([str(run.path), *(value for _, value in run._facts())])
            except NextwordError as error:
                rows.append([str(run.path), "", f"unreadable: {error}", "", "", "", ""])
        return table_html(("run", "recipe", "status", "score", "parameters", "size", "training"), rows)


# ------------------------------------------------------------------------------------------------ fine-tuning


class TransferResult:
    """What `transfer` returns: the fine-tuned runs, their scores, and the model.

        result = nextword.transfer("bert/finetune", from_="runs/bert", data="reviews.csv")
        result.scores["accuracy"], result.model.predict(["A fine film."])

    With several seeds or tasks there are several runs: `runs`, `mean` and `interval` speak about all of them, `model`
    is that of the best run on dev.
    """

    def __init__(self, tuned: FineTuning) -> None:
        self.path = Path(tuned.folder)
        self.outcomes: Sequence[Outcome] = tuned.outcomes
        self.table: Mapping[str, Any] = tuned.results  # of a suite or of twins, as in results.json; else empty
        self.is_single = tuned.is_single  # one run
        self.is_interrupted = tuned.interrupted

    def __fspath__(self) -> str:
        return str(self.best.path)

    def __str__(self) -> str:
        return str(self.best.path)

    @property
    def runs(self) -> Runs:
        """Every run, finished or not."""
        return Runs(Run(path) for outcome in self.outcomes for path in outcome.runs)

    @property
    def results(self) -> list[Mapping[str, Any]]:
        """The results of the finished runs, as in their manifests: scores by split, numbers of examples, notes."""
        return [result for outcome in self.outcomes for result in outcome.results]

    @property
    def metric(self) -> str:
        """The main metric of the (first) task."""
        return self.outcomes[0].metric

    @property
    def mean(self) -> float:
        """The main metric on dev, averaged over the seeds, then over the tasks."""
        return sum(outcome.mean for outcome in self.outcomes) / len(self.outcomes)

    @property
    def interval(self) -> float | None:
        """Half of the 95 % interval over the seeds of the (first) task; None for one seed."""
        return self.outcomes[0].interval

    @property
    def best(self) -> Run:
        """The run with the highest main metric on dev. Several tasks have no best run."""
        if len(self.outcomes) > 1:
            names = ", ".join(str(run.path) for run in self.runs)
            raise Unsupported(
                f"{self.path} has a run for each task, and none is best for all. Load one: {names}.", ability="predict"
            )
        outcome = self.outcomes[0]
        values = outcome.values() if outcome.results else [0.0]
        return Run(outcome.runs[values.index(max(values))])

    @property
    def scores(self) -> Mapping[str, float]:
        """All metrics of the best run on dev."""
        return self.best.scores

    @cached_property
    def model(self) -> TextModel:
        """The fine-tuned model, opened once: `model.predict(texts)`."""
        return self.best.load()

    @property
    def report(self) -> Path | None:
        """The HTML report of the best run: scores, errors, calibration. None if there is none."""
        path = self.best.path / REPORT
        return path if path.is_file() else None

    @property
    def errors(self) -> Mapping[str, Any] | None:
        """What goes wrong on dev: confusions, the most confident mistakes; as in errors.json."""
        from nextword.tasks.finetune import read_errors

        return read_errors(self.best.path)

    def _rows(self) -> list[list[str]]:
        """A row per task: its name and its dev scores, as mean ± half of the 95 % interval."""
        rows = []
        for outcome in self.outcomes:
            if not outcome.results:
                continue
            for name in outcome.results[0]["dev"]:
                scores = outcome.values(name)
                half = f" ± {100 * outcome.interval:.1f}" if outcome.interval and name == outcome.metric else ""
                rows.append(
                    [_short_name(outcome), name, f"{100 * sum(scores) / len(scores):.1f}{half}", str(len(scores))]
                )
        return rows

    @property
    def baselines(self) -> Sequence[Mapping[str, Any]]:
        """Comparisons of a single run with cheap methods on the same examples, one per split; () for several runs."""
        return self.results[0].get("baselines", ()) if self.is_single and self.results else ()

    def __repr__(self) -> str:
        """The main scores, and that of the best baseline."""
        from nextword.tasks.baselines import sort_methods

        if self.is_interrupted:
            return f"TransferResult({str(self.path)!r}: interrupted)"
        main = [f"{_short_name(outcome)} {outcome.metric} {100 * outcome.mean:.1f}" for outcome in self.outcomes]
        best = [(sort_methods(comparison)[0], comparison) for comparison in self.baselines[:1]]
        main += [f"{method['name']} {100 * method[at['split']][at['metric']]:.1f}" for method, at in best]
        return f"TransferResult({str(self.path)!r}: {', '.join(main)})"

    def _repr_html_(self) -> str:
        from nextword.tasks.baselines import describe_only_prediction, describe_verdict
        from nextword.tasks.baselines import table as baseline_table

        status = "interrupted" if self.is_interrupted else "finished"
        report = str(self.report) if self.is_single and self.report else ""
        tables = [table_html(("task", "dev metric", "score", "seeds"), self._rows())]
        for comparison in self.baselines:
            sentences = describe_only_prediction(comparison), describe_verdict(comparison)
            tables.append(table_html(*baseline_table(comparison), " ".join(filter(None, sentences))))
        return facts_html(f"Fine-tuned {self.path}", [("status", status), ("report", report)], *tables)


def _short_name(outcome: Outcome) -> str:
    """The name of the data, but not the long path of the file that data in memory is saved to."""
    return NAME if is_saved_frame(outcome.name) else outcome.name


class Predictions(list[Any]):
    """One prediction per example, as a list; `labels` has what was predicted. Shown as a table."""

    def __init__(
        self,
        predictions: Iterable[Any],
        examples: Sequence[Any] = (),
        scores: Mapping[str, float] | None = None,
        notes: Sequence[str] = (),
    ) -> None:
        super().__init__(predictions)
        self.examples = list(examples)  # what was predicted for, if it was given as a list
        self.scores = dict(scores or {})  # against the labels of a table that has some
        self.notes = list(notes)

    @property
    def labels(self) -> list[Any]:
        """The label or the number of each prediction: a column for a frame."""
        return [_label(prediction) for prediction in self]

    def _rows(self) -> list[list[str]]:
        shown = self[:MAX_SHOWN]
        examples = self.examples[:MAX_SHOWN] or list(range(len(shown)))
        return [
            [_shorten(example), _shorten(_label(prediction)), _confidence(prediction)]
            for example, prediction in zip(examples, shown, strict=False)
        ]

    def _scores(self) -> list[str]:
        return [f"{name} {100 * value:.1f}" for name, value in self.scores.items()]

    def __repr__(self) -> str:
        """A line per example: the prediction, its probability, the example."""
        rows = self._rows()
        label, probability = (max((len(row[i]) for row in rows), default=0) for i in (1, 2))
        lines = [f"  {row[1]:{label}}  {row[2]:{probability}}  {row[0]}" for row in rows]
        lines += [f"  … and {len(self) - MAX_SHOWN:,} more"] * (len(self) > MAX_SHOWN)
        return "\n".join([f"Predictions({', '.join([f'{len(self):,} examples', *self._scores()])})", *lines])

    def _repr_html_(self) -> str:
        more = [f"the first {MAX_SHOWN} of {len(self):,}"] if len(self) > MAX_SHOWN else []
        note = "; ".join([*more, *self._scores(), *self.notes])
        return table_html(("example", "prediction", "probability"), self._rows(), note)


def _label(prediction: Any) -> Any:
    if isinstance(prediction, Prediction):
        return prediction.label if prediction.value is None else prediction.value
    return prediction


def _confidence(prediction: Any) -> str:
    if isinstance(prediction, Prediction) and prediction.probabilities:
        return f"{prediction.probabilities[prediction.label]:.2f}"
    return ""


def _shorten(value: object) -> str:
    text = " ".join(str(value).split())
    return text if len(text) <= MAX_TEXT else f"{text[:MAX_TEXT].rstrip()} …"


# ------------------------------------------------------------------------------------------------ papers


@dataclass(frozen=True)
class Paper:
    """One model of the canon, with its recipes."""

    slug: str
    title: str
    authors: str
    year: int
    can: tuple[str, ...]  # some of "score", "next", "fill", "generate", "embed" and "predict"
    recipes: tuple[str, ...]  # names for `train` and `transfer`

    def _repr_html_(self) -> str:
        facts = [("can", ", ".join(self.can)), ("recipes", ", ".join(self.recipes))]
        return facts_html(f"{self.slug}: {self.title} ({self.authors}, {self.year})", facts)


class Papers(list[Paper]):
    """All models, shown as a table, or in a terminal one per line."""

    def __repr__(self) -> str:
        return "\n".join(f"{p.slug:12} {p.year}  {', '.join(p.recipes)}" for p in self) or "Papers(none)"

    def _repr_html_(self) -> str:
        rows = [(p.slug, p.title, p.year, ", ".join(p.can), ", ".join(p.recipes)) for p in self]
        return table_html(("model", "paper", "year", "can", "recipes"), rows)
