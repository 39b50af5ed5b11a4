"""nextword: the language models of the literature, trained, compared and used in the same way.

A first tour:

    import nextword

    # Train a small LSTM on the built-in text, evaluate it, and write its model card.
    result = nextword.train("lstm/tiny", "runs/lstm")

    # Use it: strings in, probabilities, texts and vectors out.
    lm = nextword.load("runs/lstm")
    lm.score("the cat sat on the mat").bits_per_byte()
    [guess.text for guess in lm.next("the cat sat on the")]
    "".join(piece.text for piece in lm.generate("the cat"))
    lm.embed(["one text", "another text"])

    # Which model predicts this text best?
    nextword.compare(["ngram/small", "lstm/small", "gpt2/small"], data="my.txt", minutes=20)

    # Fine-tune a run for a task, and predict.
    nextword.transfer("ulmfit/classify", "runs/ulmfit", "reviews.csv", "runs/reviews")
    nextword.predict("runs/reviews", ["A fine film."])

Every function has a command of the same name: `nextword train lstm/tiny`. Mistakes that you can fix raise subclasses of
nextword.NextwordError. `nextword.papers()` lists all models and recipes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nextword.core.errors import NextwordError

if TYPE_CHECKING:
    from nextword.comparison.compare import Update
    from nextword.conversion.base import Conversion
    from nextword.core.types import Decoding, Prediction
    from nextword.evaluation.dynamic import DynamicSettings
    from nextword.evaluation.neural_cache import CacheSettings
    from nextword.lm.base import TextModel
    from nextword.recipe import Recipe
    from nextword.tasks.finetune import Outcome
    from nextword.training.events import Event

__version__ = "0.1.0"
__all__ = [
    "ComparisonResult",
    "EvaluationResult",
    "NextwordError",
    "Paper",
    "TrainingResult",
    "__version__",
    "compare",
    "convert",
    "evaluate",
    "load",
    "papers",
    "predict",
    "train",
    "transfer",
]

EVALUATE = "evaluate"  # the kind of the event that `train` sends when training has ended and evaluation begins

ABILITIES = ("score", "next", "fill", "generate", "embed", "predict")

OnEvent = Callable[["Event"], None]
OnProgress = Callable[[str, float, float | None], None]  # label, done, total


def _ignore(*_: object) -> None:
    """The default callback."""


def _never() -> bool:
    return False


# ------------------------------------------------------------------------------------------------ results


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

    def __repr__(self) -> str:
        numbers = [f"{name} {score:.2f}" for name, score in self.scores.items()]
        if self.bits_per_byte is not None:
            numbers.insert(0, f"{self.bits_per_byte:.4f} bits per byte")
        elif self.token_perplexity is not None:
            numbers.insert(0, f"token perplexity {self.token_perplexity:.2f}")
        where = f" on {self.values['data']} {self.values['split']}" if "split" in self.values else ""
        return f"EvaluationResult({', '.join(numbers) or 'no scores'}{where})"


@dataclass(frozen=True, repr=False)
class TrainingResult:
    """What `train` returns: where the run is, and how good it is on held-out text."""

    path: Path
    seconds: float  # of the last phase
    evaluation: EvaluationResult | None  # on held-out text; None if interrupted

    @property
    def is_interrupted(self) -> bool:
        """Whether `stop` ended training. Resume it with train(resume=True, out=path)."""
        return self.evaluation is None

    def load(self, device: str = "auto", precision: str = "fp32") -> TextModel:
        """Open the trained run."""
        return load(self.path, device, precision)

    def __repr__(self) -> str:
        return f"TrainingResult({self.path}: {self.evaluation or 'interrupted'}, {self.seconds:,.0f} s)"


@dataclass(frozen=True, repr=False)
class ComparisonResult:
    """What `compare` returns: all models, best first, and the path of the HTML report."""

    path: Path
    comparison: Mapping[str, Any]  # as printed by `nextword compare --json`
    report: Path | None  # None if no model could be trained
    is_interrupted: bool

    @property
    def models(self) -> Sequence[Mapping[str, Any]]:
        """One row of results per model, best first."""
        models: Sequence[Mapping[str, Any]] = self.comparison["models"]
        return models

    def __repr__(self) -> str:
        bits = [(model["name"], model.get("bits_per_byte")) for model in self.models]
        ranking = " < ".join(f"{name} {value:.3f}" for name, value in bits if value is not None)
        return f"ComparisonResult({self.path}: {ranking or f'{len(self.models)} models'})"


@dataclass(frozen=True)
class Paper:
    """One model of the canon, with its recipes."""

    slug: str
    title: str
    authors: str
    year: int
    can: tuple[str, ...]  # some of "score", "next", "fill", "generate", "embed" and "predict"
    recipes: tuple[str, ...]  # names for `train` and `transfer`


# ------------------------------------------------------------------------------------------------ functions


def train(
    recipe: str | Path | Recipe | None = None,
    out: str | Path | None = None,
    *,
    data: str | Sequence[str] = (),
    changes: Iterable[str] = (),
    seed: int | None = None,
    resume: bool = False,
    device: str = "auto",
    on_event: OnEvent = _ignore,
    on_progress: OnProgress = _ignore,
    stop: Callable[[], bool] = _never,
) -> TrainingResult:
    """Train a recipe into a run folder, evaluate it on held-out text, and write its model card.

        result = nextword.train("lstm/tiny", "runs/mine", data="my.txt", changes=["phase.0.minutes=10"])
        result.load().score("the cat sat on the mat").bits_per_byte()

    recipe        "slug/name" (see `papers`), the path of a TOML file, or a Recipe
    out           run folder; the default is runs/<slug>-<name>
    data          text to train on: a path or the name of a data set; "NAME=X" for the phase called NAME
    changes       settings to change, as with --set: "phase.0.epochs=3"
    seed          random seed of all phases
    resume        continue the run in `out`, bit-exactly; leave the recipe out, or give the same one
    device        "cpu", "cuda", "cuda:1" or "auto"
    on_event      called with every Event of training, and with one of kind "evaluate" when training has ended
    on_progress   called with (label, done, total) while text is read and scored
    stop          called between steps; True ends training with its state saved
    """
    from nextword.core.errors import InvalidSetting
    from nextword.evaluation.evaluate_run import evaluate_finished_run
    from nextword.recipe import load_recipe
    from nextword.run_folder import RunFolder
    from nextword.training.events import Event
    from nextword.training.train import train_events

    if isinstance(recipe, (str, Path)):
        recipe = load_recipe(recipe, changes)
    elif list(changes):
        raise InvalidSetting("`changes` need a recipe by name. Change the Recipe itself instead.", key="changes")
    if recipe is not None:
        recipe = recipe.with_data([data] if isinstance(data, str) else list(data))
        recipe = recipe if seed is None else recipe.with_seed(seed)
        folder = Path(out or default_run_folder(recipe))
    elif data or seed is not None:
        raise InvalidSetting("A resumed run keeps its data and seed. Leave them out.", key="resume")
    elif out:
        folder = Path(out)
    else:
        raise InvalidSetting("Name the run to resume (out = RUN); `nextword runs` lists all runs.", key="out")
    last: Event | None = None
    for event in train_events(recipe, folder, resume, device=device, stop=stop, on_progress=on_progress):
        on_event(event)
        last = event
    assert last is not None, "training always yields events"
    run = RunFolder.open(folder)
    if last.is_interrupted:
        return TrainingResult(folder, last.seconds, None)
    on_event(Event(EVALUATE, last.phase, last.step, last.epoch, last.seconds))
    evaluation = evaluate_finished_run(run, device, on_progress)
    return TrainingResult(folder, last.seconds, EvaluationResult(evaluation))


def default_run_folder(recipe: Recipe) -> str:
    """runs/<slug>-<name>"""
    return f"runs/{recipe.slug}-{recipe.name.rsplit('/', 1)[-1].removesuffix('.toml')}"


def load(run: str | Path, device: str = "auto", precision: str = "fp32") -> TextModel:
    """Open a run folder as a model: plain strings in, plain values out.

        lm = nextword.load("runs/lstm-tiny")
        lm.score("the cat sat on the mat").bits_per_byte()
        [guess.text for guess in lm.next("the cat sat on the")]
        "".join(piece.text for piece in lm.generate("the cat"))

    All files are verified. `lm.can` lists the model's abilities; other methods raise Unsupported with a reason.

    device      "cpu", "cuda", "cuda:1" or "auto"
    precision   of the weights: "fp32", "bf16" or "int8"
    """
    from nextword.lm.loading import load as load_run

    return load_run(run, device, precision)


def evaluate(
    run: str | Path,
    data: str = "",
    *,
    split: str = "",
    context: int | None = None,
    stride: int | None = None,
    limit: int | None = None,
    decoding: Decoding | None = None,
    cache: CacheSettings | None = None,
    dynamic: DynamicSettings | None = None,
    overlap_with: str = "",
    device: str = "auto",
    on_progress: OnProgress = _ignore,
) -> EvaluationResult:
    """Measure how well a run predicts a text, or how good its translations are; append the result to its log.

        nextword.evaluate("runs/lstm-tiny").bits_per_byte
        nextword.evaluate("runs/seq2seq-multi30k", decoding=Beam(5)).scores["bleu"]

    data       a path or the name of a data set; the default is the run's own
    split      "train", "valid" or "test"; the default is the first of test, valid and train that exists
    context    tokens that the model may look back, in windows that move on by `stride` (default: half the context)
    limit      evaluate a sample: of hidden tokens (masked models) or of pairs (sequence-to-sequence models)
    decoding   how a sequence-to-sequence model generates; the default is greedy
    cache      evaluate with a neural cache; settings that are left open are found on validation text
    dynamic    dynamic evaluation: the model keeps learning while it reads
    overlap_with   a training text: documents that overlap with it are also scored separately
    """
    from nextword.evaluation.evaluate_run import evaluate_run

    return EvaluationResult(
        evaluate_run(
            run,
            data,
            split=split,
            context=context,
            stride=stride,
            limit=limit,
            decoding=decoding,
            cache=cache,
            dynamic=dynamic,
            overlap_with=overlap_with,
            device=device,
            on_progress=on_progress,
        )
    )


def compare(
    models: Sequence[str] = (),
    data: str = "",
    minutes: float = 4.0,
    out: str | Path | None = None,
    *,
    changes: Sequence[str] = (),
    resume: bool = False,
    device: str = "auto",
    on_update: Callable[[Update], None] = _ignore,
    on_progress: OnProgress = _ignore,
    stop: Callable[[], bool] = _never,
) -> ComparisonResult:
    """Train several models on one text under one time budget, and rank them on the same held-out bytes.

        nextword.compare(["lstm/small", "gpt2/small", "runs/mine"], data="my.txt", minutes=20)

    models      recipes and run folders; the default is a ladder from n-grams to Transformers
    data        a path or the name of a data set; the default is built in
    minutes     training time of all models together
    out         folder for runs and report.html; the default is runs/compare-<data>
    changes     settings to change in every recipe, as with --set
    resume      continue the comparison in `out`
    on_update   called with every Update of a model
    """
    from nextword.comparison.compare import open_plan, run_plan

    plan = open_plan(models, data, minutes, out, changes, resume)
    return run_plan(plan, device, on_update, on_progress, stop)


def transfer(
    recipe: str,
    source: str | Path,
    data: str | Path,
    out: str | Path,
    *,
    text: str = "",
    text_pair: str = "",
    label: str = "",
    kind: str = "",
    changes: Sequence[str] = (),
    seed: int | None = None,
    num_seeds: int = 0,
    scratch: bool = False,
    resume: bool = False,
    device: str = "auto",
    on_event: OnEvent = _ignore,
    on_progress: OnProgress = _ignore,
    stop: Callable[[], bool] = _never,
) -> Outcome:
    """Fine-tune a run on a task: classification, tagging, question answering and others.

        outcome = nextword.transfer("bert/finetune", "runs/bert", "reviews.csv", "runs/reviews", num_seeds=3)
        outcome.mean, outcome.interval

    recipe      a fine-tuning recipe, such as "bert/finetune" or "ulmfit/classify"
    source      the run to fine-tune; "" for a recipe with a network of its own
    data        a table, or the name of a benchmark such as "RTE"
    out         the new run folder; with `num_seeds`, its subfolders seed-0, seed-1 …
    text        columns of the table: `text`, `text_pair` and `label`; the default is to guess them by name
    kind        "classification", "pair_classification", "regression" or "multiple_choice"; the default is to guess it
    changes     settings to change, as with --set: "phase.0.epochs=3"
    num_seeds   train this many seeds
    scratch     train the same network from random weights
    resume      reuse finished runs in `out`, and resume interrupted ones
    """
    from nextword.data.tables import Columns
    from nextword.tasks.finetune import run

    return run(
        recipe,
        source,
        data,
        out,
        columns=Columns(text, text_pair, label),
        kind=kind,
        seed=seed,
        seeds=num_seeds,
        scratch=scratch,
        changes=changes,
        device=device,
        resume=resume,
        on_event=on_event,
        on_progress=on_progress,
        stop=stop,
    )


def predict(
    run: str | Path, examples: Sequence[object], device: str = "auto", precision: str = "fp32"
) -> list[Prediction]:
    """Predict labels, numbers, tags or answers with a fine-tuned run.

        nextword.predict("runs/reviews", ["A fine film.", "Two hours wasted."])

    An example is a text, a pair of texts, a list of words, or a question and its passage, depending on the task. To
    predict more than once, keep the model: `nextword.load(run).predict(examples)`.
    """
    return load(run, device, precision).predict(examples)


def convert(
    source: str | Path,
    target: str | Path,
    *,
    changes: Sequence[str] = (),
    to: str = "",
    tokenizer: str | Path = "",
    on_progress: OnProgress = _ignore,
) -> Conversion:
    """Convert a run to another format, or another format to a run: Hugging Face, ARPA, word vectors, int8.

        nextword.convert("path/to/gpt2", "runs/gpt2")
        nextword.convert("runs/ngram", "model.arpa")

    The formats are recognized by the content of `source` and the name of `target`, or given by `to`. A new run folder
    gets a model card. `tokenizer` is a run or a tokenizer file, for an ARPA file of subwords or a Hugging Face folder
    without its own.
    """
    from nextword.conversion import convert as convert_files
    from nextword.conversion import is_run
    from nextword.model_card import write_card
    from nextword.run_folder import RunFolder

    result = convert_files(source, target, changes, on_progress, to, tokenizer)
    if is_run(result.target):
        write_card(RunFolder.open(result.target))
    return result


def papers() -> list[Paper]:
    """The models that come with nextword, in the order of their history, with their recipes.

    [paper.slug for paper in nextword.papers() if "generate" in paper.can]
    """
    from nextword.models import MODELS, abilities, model_class
    from nextword.recipe import load_recipe, recipe_names

    entries = []
    for slug in MODELS:
        names = tuple(name for name in recipe_names() if name.startswith(slug + "/"))
        tiny = load_recipe(f"{slug}/tiny")
        cls = model_class(slug)
        abilities_of_runs = {"predict"} if cls.is_tagger else abilities(cls, tiny.model)
        can = tuple(name for name in ABILITIES if name in abilities_of_runs)
        entries.append(Paper(slug, tiny.paper["title"], tiny.paper["authors"], tiny.paper["year"], can, names))
    return entries
