"""The public functions: what every command does, as one call. `import nextword as nw; nw.train(…)`.

    train, evaluate, compare, transfer   make runs, and measure them
    load, predict, convert               use them
    papers, runs, open_corpus            what there is: models, runs, texts

The command line parses its options, calls these, and prints what they return.

**Data** is a path, the name of a data set, or data in memory: a frame of pandas or polars, a list of texts, of (text,
label) pairs or of dictionaries, a dictionary of columns, or a dictionary of splits ({"train": …, "dev": …}). Data in
memory is saved first, under a name that is a hash of its content, since a run must say what it was trained on.

**Settings** of recipes are keywords: `minutes=2, model={"width": 128}, optimizer={"rate": 1e-3}`. `changes` has them as
text, in the form of `--set`, for programs that read them from somewhere: `changes=["model.width=128"]`.

**Progress** is a bar in a terminal or a notebook, and lines elsewhere; `progress=False` shows nothing. Ctrl-C (a
notebook's stop button) ends training after the current step with its state saved, and raises KeyboardInterrupt.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from numbers import Integral, Real
from os import PathLike, fspath
from os.path import isfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, overload

from nextword.core.errors import InvalidSetting, as_keywords, invalid, options_as_keywords
from nextword.progress.display import Interrupt, Interrupted, ProgressDisplay, interruptible
from nextword.results import EvaluationResult, Paper, Papers, Predictions, Run, Runs, TransferResult

if TYPE_CHECKING:
    from nextword.comparison.compare import Plan
    from nextword.comparison.result import ComparisonResult
    from nextword.conversion.base import Conversion
    from nextword.core.types import Decoding
    from nextword.data.corpus import Corpus
    from nextword.evaluation.dynamic import DynamicSettings
    from nextword.evaluation.neural_cache import CacheSettings
    from nextword.lm.base import TextModel
    from nextword.progress.comparison import ComparisonDisplay
    from nextword.recipe import Recipe
    from nextword.training.events import Event

ABILITIES = ("score", "next", "fill", "generate", "embed", "predict")

RunPath = str | PathLike[str]  # the path of a run folder, a Run, or a TransferResult
StopCheck = Callable[[], bool]


def _source(data: object, names: Sequence[str] = ()) -> str:
    """Data as the text that every reader takes: a path or a name. Data in memory is saved."""
    from nextword.data.frames import as_source

    if data is None:
        return ""
    if isinstance(data, PathLike):
        return fspath(data)
    if isinstance(data, (list, tuple)) and data and all(isinstance(item, Path) for item in data):
        data = [str(item) for item in data]
    if isinstance(data, (list, tuple)) and data and all(isinstance(item, str) for item in data):
        files = [item for item in data[:100] if isfile(item)]
        if len(files) == len(data[:100]):
            problem = f"is a list of files, and a list is read as texts. Join them: data={' + '.join(data[:3])!r}."
            raise invalid("data", data[:3], problem)
    return as_source(data, names=names)


def _path(key: str, value: object) -> str:
    """The path of a folder, from what a function takes in its place."""
    if not isinstance(value, (str, PathLike)):
        raise invalid(key, value, "must be a path, a Run or a TransferResult.")
    return fspath(value)


def _whole_number(key: str, value: object) -> int:
    if not isinstance(value, Integral) or isinstance(value, bool):
        raise invalid(key, value, "must be a whole number.")
    return int(value)


def _positive_number(key: str, value: object) -> float:
    if not isinstance(value, Real) or isinstance(value, bool) or not float(value) > 0:
        raise invalid(key, value, "must be a positive number.")
    return float(value)


# ------------------------------------------------------------------------------------------------ training


@overload
def train(
    recipe: str | Path | Recipe | None = ...,
    data: object = ...,
    *,
    columns: str | Sequence[str | int] = ...,
    header: bool | None = ...,
    out: RunPath | None = ...,
    seed: int | None = ...,
    resume: bool = ...,
    device: str = ...,
    progress: bool = ...,
    events: Literal[False] = ...,
    stop: StopCheck | None = ...,
    changes: Sequence[str] = ...,
    **settings: Any,
) -> Run: ...
@overload
def train(
    recipe: str | Path | Recipe | None = ...,
    data: object = ...,
    *,
    columns: str | Sequence[str | int] = ...,
    header: bool | None = ...,
    out: RunPath | None = ...,
    seed: int | None = ...,
    resume: bool = ...,
    device: str = ...,
    progress: bool = ...,
    events: Literal[True],
    stop: StopCheck | None = ...,
    changes: Sequence[str] = ...,
    **settings: Any,
) -> Iterator[Event]: ...
@options_as_keywords()
def train(
    recipe: str | Path | Recipe | None = None,
    data: object = None,
    *,
    columns: str | Sequence[str | int] = "",
    header: bool | None = None,
    out: RunPath | None = None,
    seed: int | None = None,
    resume: bool = False,
    device: str = "auto",
    progress: bool = True,
    events: bool = False,
    stop: StopCheck | None = None,
    changes: Sequence[str] = (),
    **settings: Any,
) -> Run | Iterator[Event]:
    """Train a recipe into a run folder, evaluate it on held-out text, and write its model card.

        run = nextword.train("lstm/small", data="my.txt", minutes=2, model={"width": 128})
        run.evaluation.bits_per_byte, run.model.score("the cat").bits_per_byte()

        for event in nextword.train("lstm/small", data="my.txt", events=True):
            print(event.kind, event.step, event.values.get("loss"))

    recipe    "slug/name" (see `papers`), the path of a TOML file, or a Recipe
    data      text, or pairs for a sequence-to-sequence recipe; {"PHASE": data, …} if the recipe has several phases
    columns   of a table, by name or number from 1: that of the text, or those of source and target
    header    whether the first row of a table names its columns; the default is to detect it
    out       run folder; the default is runs/<slug>-<name>
    seed      random seed of all phases
    resume    continue the run in `out`, bit-exactly; leave the recipe out, or give the same one
    device    "cpu", "cuda", "cuda:1" or "auto"
    events    return the generator of events instead; the last one, of kind "evaluate", has the evaluation. Closed
              early, it saves the state, and `resume` continues
    stop      called between steps; True ends training with its state saved
    settings  settings of the recipe by name: minutes=2, epochs=3, model={…}, tokenizer={…}, optimizer={…};
              phase={"NAME": {…}} in a recipe with several phases
    """
    from nextword.recipe import Recipe, load_recipe, settings_as_changes

    given = settings or changes
    if isinstance(recipe, (str, PathLike)):
        loaded = load_recipe(fspath(recipe))
        all_changes = [*changes, *settings_as_changes(settings, loaded)]
        recipe = load_recipe(fspath(recipe), all_changes) if all_changes else loaded
    elif recipe is not None and not isinstance(recipe, Recipe):
        raise invalid("recipe", recipe, "must be the name of a recipe, as in 'lstm/small', or the path of a TOML file.")
    elif recipe is not None and given:
        raise InvalidSetting("Settings need a recipe by name. Change the Recipe itself instead.", key="settings")
    if recipe is not None:
        recipe = _with_data(recipe, data, columns, header)
        recipe = recipe if seed is None else recipe.with_seed(_whole_number("seed", seed))
        folder = Path(_path("out", out) if out else default_run_folder(recipe))
    elif data is not None or seed is not None or given or columns or header is not None:
        raise InvalidSetting("A resumed run keeps its data, seed and settings. Leave them out.", key="resume")
    elif resume and out:
        folder = Path(_path("out", out))
    elif resume:
        raise InvalidSetting("Name the run to resume: out=RUN. `nextword.runs()` lists all runs.", key="out")
    else:
        raise InvalidSetting(
            'Name a recipe, for example nextword.train("lstm/tiny"). `nextword.papers()` lists them.', key="recipe"
        )
    if events:
        return _train_and_evaluate(recipe, folder, resume, device, stop)
    return _train(recipe, folder, resume, device, progress, stop)


def _train(
    recipe: Recipe | None, folder: Path, resume: bool, device: str, progress: bool, stop: StopCheck | None
) -> Run:
    from nextword.evaluation.evaluate_run import evaluate_finished_run
    from nextword.objectives import trains_on_pairs
    from nextword.progress.training import TrainingDisplay
    from nextword.run_folder import RunFolder
    from nextword.training.train import train_events

    last: Event | None = None
    with interruptible() as interrupt, TrainingDisplay(not progress) as display:
        for phase in recipe.phases if recipe is not None else ():
            _say_columns(phase.data, display, trains_on_pairs(phase.objective))
        stop = _either(stop, interrupt)
        for event in train_events(recipe, folder, resume, device=device, stop=stop, on_progress=display.update):
            display(event)
            last = event
        if last is None or last.is_interrupted:
            _raise_if_interrupted(interrupt, Run(folder), f"nextword.train(resume=True, out={str(folder)!r})")
            return Run(folder)
        interrupt.stops_at_once = True
        evaluation = evaluate_finished_run(RunFolder.open(folder), device, display.update)
    return Run(folder, EvaluationResult(evaluation))


def _train_and_evaluate(
    recipe: Recipe | None, folder: Path, resume: bool, device: str, stop: StopCheck | None
) -> Iterator[Event]:
    """The events of training, and one of kind "evaluate" with the evaluation.

    If the generator is closed early, training stops as if asked to: after one more step, with its state saved.
    """
    from nextword.evaluation.evaluate_run import evaluate_finished_run
    from nextword.run_folder import RunFolder
    from nextword.training.events import EVALUATE, Event
    from nextword.training.train import train_events

    is_closed = False

    def should_stop() -> bool:
        return is_closed or (stop is not None and stop())

    last: Event | None = None
    training = train_events(recipe, folder, resume, device=device, stop=should_stop)
    for event in training:
        last = event
        try:
            yield event
        except GeneratorExit:
            is_closed = True
            for _ in training:
                pass
            raise
    if last is not None and not last.is_interrupted:
        evaluation = evaluate_finished_run(RunFolder.open(folder), device)
        yield Event(EVALUATE, last.phase, last.step, last.epoch, last.seconds, evaluation)


def _with_data(
    recipe: Recipe, data: object, columns: str | Sequence[str | int] = "", header: bool | None = None
) -> Recipe:
    """The recipe on this data; a dictionary may name the data of each phase. Columns and header are for the first."""
    from nextword.data.tables import choose_in_spec
    from nextword.objectives import trains_on_pairs

    if columns or header is not None:
        given = _with_data(recipe, data)
        own, is_parallel = given.phases[0].data, trains_on_pairs(given.phases[0].objective)
        chosen = choose_in_spec(own, columns, header, is_parallel)
        return replace(given, phases=tuple(replace(p, data=chosen) if p.data == own else p for p in given.phases))
    if data is None:
        return recipe
    phases = {phase.name: phase for phase in recipe.phases}
    if isinstance(data, Mapping) and len(phases) > 1 and set(data) <= set(phases):
        return recipe.with_data([f"{name}={_text_source(phases[name].objective, part)}" for name, part in data.items()])
    first = recipe.phases[0]
    source = _text_source(first.objective, data)
    if trains_on_pairs(first.objective) and not isinstance(data, (str, PathLike)):
        source = f"{source}:source-target"
    return recipe.with_data([source])


def _text_source(objective: Mapping[str, Any], data: object) -> str:
    from nextword.objectives import trains_on_pairs

    return _source(data, ("source", "target") if trains_on_pairs(objective) else ())


def default_run_folder(recipe: Recipe) -> str:
    """runs/<slug>-<name>"""
    return f"runs/{recipe.slug}-{recipe.name.rsplit('/', 1)[-1].removesuffix('.toml')}"


def _either(stop: StopCheck | None, interrupt: Interrupt) -> StopCheck:
    return interrupt if stop is None else lambda: stop() or interrupt()


def _raise_if_interrupted(interrupt: Interrupt, result: Any, call: str) -> None:
    """Raise KeyboardInterrupt if the user has stopped the call; `call` continues it."""
    if interrupt.is_requested:
        raise Interrupted(f"stopped, with the state saved in {result.path}. Continue: {call}", result)


def _say_columns(data: str, display: ProgressDisplay | ComparisonDisplay, has_pairs: bool) -> None:
    """Say which columns of a table are read, whether it has a header, and how many rows are skipped."""
    from nextword.data.frames import is_saved_frame
    from nextword.data.opening import describe_reading
    from nextword.data.parallel import describe_pairs

    if data and not display.is_quiet and not is_saved_frame(data):
        display.warn(describe_pairs(data) if has_pairs else describe_reading(data))


# ------------------------------------------------------------------------------------------------ evaluating


@options_as_keywords()
def evaluate(
    run: RunPath,
    data: object = None,
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
    progress: bool = True,
) -> EvaluationResult:
    """Measure how well a run predicts a text, or how good its translations are; append the result to its log.

        nextword.evaluate("runs/lstm-tiny").bits_per_byte
        nextword.evaluate("runs/lstm-tiny", ["A text of my own.", "Another one."])
        nextword.evaluate("runs/seq2seq-multi30k", decoding=nextword.Beam(5)).scores["bleu"]

    data       the default is the run's own
    split      "train", "valid" or "test"; the default is the first of test, valid and train that exists
    context    tokens that the model may look back, in windows that move on by `stride` (default: half the context)
    limit      evaluate a sample: of hidden tokens (masked models) or of pairs (sequence-to-sequence models)
    decoding   how a sequence-to-sequence model generates; the default is greedy
    cache      evaluate with a neural cache; settings that are left open are found on validation text
    dynamic    dynamic evaluation: the model keeps learning while it reads
    overlap_with   a training text: documents that overlap with it are also scored separately
    """
    from nextword.evaluation.evaluate_run import evaluate_run
    from nextword.models import model_class
    from nextword.run_folder import RunFolder

    path = _path("run", run)
    recipe = RunFolder.open(path).recipe
    reads_pairs = recipe.task is None and model_class(recipe.slug).is_conditional
    source = _source(data, ("source", "target") if reads_pairs else ())
    if reads_pairs and not isinstance(data, (str, PathLike, type(None))):
        source = f"{source}:source-target"
    with ProgressDisplay(not progress) as display:
        if recipe.task is None:
            _say_columns(source or recipe.phases[-1].data, display, reads_pairs)
        values = evaluate_run(
            path,
            source,
            split=split,
            context=context,
            stride=stride,
            limit=limit,
            decoding=decoding,
            cache=cache,
            dynamic=dynamic,
            overlap_with=overlap_with,
            device=device,
            on_progress=display.update,
        )
    return EvaluationResult(values)


# ------------------------------------------------------------------------------------------------ comparing


@options_as_keywords()
def compare(
    models: Sequence[RunPath] = (),
    data: object = None,
    minutes: float = 4.0,
    *,
    columns: str | Sequence[str | int] = "",
    header: bool | None = None,
    out: RunPath | None = None,
    resume: bool = False,
    device: str = "auto",
    progress: bool = True,
    stop: StopCheck | None = None,
    changes: Sequence[str] = (),
    **settings: Any,
) -> ComparisonResult:
    """Train several models on one text under one time budget, and rank them on the same held-out bytes.

        result = nextword.compare(data="my.txt", minutes=5)
        result.winner, result.table, result.report, result.model
        nextword.compare(["lstm/small", "gpt2/small", "runs/mine"], data="my.txt", minutes=20)

    models     recipes and run folders; the default is a ladder from n-grams to Transformers
    data       the default is built in
    minutes    training time of all models together
    columns    of a table, by name or number from 1: that of the text, or those of source and target
    header     whether the first row of a table names its columns; the default is to detect it
    out        folder for runs and report.html; the default is runs/compare-<data>
    resume     continue the comparison in `out`
    stop       called between steps; True ends the comparison with its state saved
    settings   settings of every recipe by name: tokenizer={"size": 8000}
    """
    from nextword.comparison.compare import open_plan, run_plan
    from nextword.data.tables import choose_in_spec
    from nextword.progress.comparison import ComparisonDisplay
    from nextword.recipe import settings_as_changes

    if isinstance(models, (str, PathLike)):
        models = [models]
    all_changes = [*changes, *settings_as_changes(settings)]
    plan: Plan = open_plan(
        [_path("models", model) for model in models],
        choose_in_spec(
            _source(data), columns, header, "," in columns if isinstance(columns, str) else len(columns) > 1
        ),
        _positive_number("minutes", minutes),
        _path("out", out) if out else None,
        all_changes,
        resume,
    )
    with interruptible() as interrupt, ComparisonDisplay(plan, not progress) as display:
        _say_columns(plan.data, display, plan.has_pairs)
        result = run_plan(plan, device, display, display.preparing, _either(stop, interrupt))
    if result.is_interrupted:
        _raise_if_interrupted(interrupt, result, f"nextword.compare(resume=True, out={str(result.path)!r})")
    return result


# ------------------------------------------------------------------------------------------------ fine-tuning


@options_as_keywords()
def transfer(
    recipe: str | Path | None = None,
    from_: RunPath = "",
    data: object = None,
    *,
    out: RunPath | None = None,
    columns: str | Sequence[str | int] = "",
    header: bool | None = None,
    text: str = "",
    text_pair: str = "",
    label: str = "",
    kind: str = "",
    features: RunPath = "",
    train_fraction: float = 1.0,
    merge_dev: bool = False,
    scratch: bool = False,
    compare_scratch: bool = False,
    seed: int | None = None,
    num_seeds: int = 0,
    resume: bool = False,
    device: str = "auto",
    progress: bool = True,
    stop: StopCheck | None = None,
    changes: Sequence[str] = (),
    **settings: Any,
) -> TransferResult:
    """Fine-tune a run on a task: classification, tagging, question answering and others.

        result = nextword.transfer("bert/finetune", from_="runs/bert", data="reviews.csv", epochs=3)
        result.scores["accuracy"], result.model.predict(["A fine film."])
        nextword.transfer("bert/finetune", "runs/bert", [("A fine film.", "good"), ("Two hours wasted.", "bad"), …])

    recipe      a fine-tuning recipe, such as "bert/finetune" or "ulmfit/classify"
    from_       the run to fine-tune; "" for a recipe with a network of its own
    data        labeled rows, or the name of a benchmark such as "RTE"
    out         the new run folder; the default is runs/<model>-<data>; with `num_seeds`, its subfolders seed-0 …
    columns     of a table, by name or number from 1: [text, label] or [text, second text, label]; the default is to
                guess them by name, or else by content
    header      whether the first row of a table names its columns; the default is to detect it
    text        the same columns one by one: `text`, `text_pair` and `label`
    kind        "classification", "pair_classification", "regression" or "multiple_choice"; the default is to guess it
    features    a run whose contextual embeddings a tagger also reads
    train_fraction   fraction of the training examples to use
    merge_dev   also train on dev, and keep the last weights
    scratch     train the same network from random weights
    compare_scratch   do both, and report the difference
    num_seeds   train this many seeds
    resume      reuse finished runs in `out`, and resume interrupted ones; without a recipe: resume the run in `out`
    stop        called between steps; True ends training with its state saved
    settings    settings of the recipe by name: epochs=3, optimizer={"rate": 1e-5}, task={…}
    """
    from nextword.data.tables import parse_columns
    from nextword.progress.transfer import TransferDisplay
    from nextword.recipe import load_recipe, settings_as_changes
    from nextword.tasks.suite import fine_tune

    name = "" if recipe is None else str(recipe)
    if not name and not resume:
        raise InvalidSetting("Name a recipe, such as bert/finetune: help(nextword.transfer).", key="recipe")
    loaded = load_recipe(name) if name and settings else None
    with interruptible() as interrupt, TransferDisplay(not progress) as display:
        tuned = fine_tune(
            name,
            _path("from_", from_) if from_ else "",
            _source(data),
            _path("out", out) if out else "",
            columns=parse_columns(columns, header, text=text, second=text_pair, label=label),
            kind=kind,
            seed=None if seed is None else _whole_number("seed", seed),
            seeds=_whole_number("num_seeds", num_seeds),
            features=_path("features", features) if features else "",
            train_fraction=train_fraction,
            merge_dev=merge_dev,
            scratch=scratch,
            compare_scratch=compare_scratch,
            changes=[*changes, *settings_as_changes(settings, loaded)],
            device=device,
            resume=resume,
            on_event=display,
            on_plan=display.on_plan,
            on_progress=display.update,
            stop=_either(stop, interrupt),
        )
    result = TransferResult(tuned)
    if result.is_interrupted:
        same = f"nextword.transfer(resume=True, out={str(result.path)!r})"
        _raise_if_interrupted(interrupt, result, same if result.is_single else "the same call with resume=True")
    return result


# ------------------------------------------------------------------------------------------------ using


@options_as_keywords()
def load(run: RunPath, device: str = "auto", precision: str = "fp32") -> TextModel:
    """Open a run folder as a model: plain strings in, plain values out.

        lm = nextword.load("runs/lstm-tiny")
        lm.score("the cat sat on the mat").bits_per_byte()
        [guess.text for guess in lm.next("the cat sat on the")]
        lm.generate("the cat", nextword.Sample(temperature=0.8)).text

    All files are verified. `lm.can` lists the model's abilities. What it cannot do is no attribute: hasattr(lm, "fill")
    is False, and `lm.fill` raises an error with the reason.

    device      "cpu", "cuda", "cuda:1" or "auto"
    precision   of the weights: "fp32", "bf16" or "int8"
    """
    from nextword.lm.loading import load as load_run

    model: TextModel = load_run(_path("run", run), device, precision)
    return model


@options_as_keywords()
def predict(
    run: RunPath | TextModel,
    data: object,
    *,
    labels: Sequence[str] = (),
    columns: str | Sequence[str | int] = "",
    header: bool | None = None,
    text: str = "",
    text_pair: str = "",
    device: str = "auto",
    precision: str = "fp32",
) -> Predictions:
    """Predict labels, numbers, tags or answers with a fine-tuned run, or choose among `labels` with a language model.

        nextword.predict("runs/reviews", ["A fine film.", "Two hours wasted."]).labels
        frame["label"] = nextword.predict("runs/reviews", frame).labels
        nextword.predict("runs/gpt2", ["The match ended 2:1."], labels=["sports", "politics"])

    data        a list of examples: texts, pairs of texts, lists of words, or questions with their passages, as the task
                needs them; or a table: a path, a frame, a dictionary of columns
    labels      for a model without a task head: labels to choose from, by their probability or by sentence vectors
                (zero-shot)
    columns     of a table, by name or number from 1: [text] or [text, second text]; the default is those used in
                training
    header      whether the first row of a table names its columns; the default is to detect it
    text        the same columns one by one: `text` and `text_pair`

    To predict more than once, keep the model: `model = nextword.load(run)`, `model.predict(examples)`.
    """
    from nextword.data.tables import parse_columns
    from nextword.lm.base import TextModel
    from nextword.tasks.in_context import zero_shot_class
    from nextword.tasks.predict import Prompt, predict_file

    if isinstance(labels, str):
        raise invalid("labels", labels, "must be a list, as in labels=['good', 'bad'].")
    if isinstance(data, (list, tuple)):
        model: Any = run if isinstance(run, TextModel) else load(run, device, precision)
        if labels:
            model = zero_shot_class(model)(model, list(labels), name=model.name)
        return Predictions(model.predict(data), data)
    path = run.name if isinstance(run, TextModel) else _path("run", run)
    done = predict_file(
        path,
        _source(data),
        columns=parse_columns(columns, header, text=text, second=text_pair, labeled=False),
        prompt=Prompt(labels) if labels else None,
        device=device,
        precision=precision,
        needs_content=False,
    )
    return Predictions(map(_as_prediction, done.records), (), done.scores, [as_keywords(note) for note in done.notes])


def _as_prediction(record: Mapping[str, Any]) -> Any:
    """A record of the predictions of a file; of tags and answers, the record itself."""
    from nextword.core.types import Prediction

    if set(record) == {"predicted"} and isinstance(record["predicted"], float):
        return Prediction(f"{record['predicted']:g}", {}, record["predicted"])
    if set(record) == {"predicted", "probabilities"}:
        return Prediction(record["predicted"], record["probabilities"])
    return record


@options_as_keywords()
def convert(
    source: RunPath,
    target: str | Path,
    *,
    changes: Sequence[str] = (),
    to: str = "",
    tokenizer: RunPath = "",
    progress: bool = True,
) -> Conversion:
    """Convert a run to another format, or another format to a run: Hugging Face, ARPA, word vectors, int8.

        nextword.convert("path/to/gpt2", "runs/gpt2")
        nextword.convert("runs/ngram", "model.arpa")

    The formats are recognized by the content of `source` and the name of `target`, or given by `to`. A new run folder
    gets a model card. `tokenizer` is a run or a tokenizer file, for an ARPA file of subwords or a Hugging Face folder
    without its own. With `to` "bf16", "int8" or "int4" the target is a run with rounded weights, in a smaller file.
    Reading restores float32, so it can still be trained.
    """
    from nextword.conversion import convert as convert_files
    from nextword.model_card import write_card
    from nextword.run_folder import RunFolder, is_run

    with ProgressDisplay(not progress) as display:
        result = convert_files(
            _path("source", source),
            target,
            changes,
            display.update,
            to,
            _path("tokenizer", tokenizer) if tokenizer else "",
        )
    if is_run(result.target):
        write_card(RunFolder.open(result.target))
    return result


# ------------------------------------------------------------------------------------------------ what there is


@options_as_keywords()
def open_corpus(data: object) -> Corpus:
    """Open a text: a path, the name of a data set, or texts in memory, split into train, valid and test.

    corpus = nextword.open_corpus("my.txt")
    corpus.splits, next(corpus.documents("train")).text
    """
    from nextword.data.opening import open_corpus as open_text

    return open_text(_source(data))


def runs(folder: str | Path = "runs") -> Runs:
    """All run folders in a folder, as a list that a notebook shows as a table.

    [run for run in nextword.runs() if run.is_finished]
    """
    return Runs(Run(path.parent) for path in sorted(Path(folder).glob("**/manifest.json")))


def papers() -> Papers:
    """The models that come with nextword, in the order of their history, with their recipes.

    [paper.slug for paper in nextword.papers() if "generate" in paper.can]
    """
    from nextword.models import MODELS, abilities, model_class
    from nextword.recipe import load_recipe, recipe_names

    entries = Papers()
    for slug in MODELS:
        names = tuple(name for name in recipe_names() if name.startswith(slug + "/"))
        tiny = load_recipe(f"{slug}/tiny")
        cls = model_class(slug)
        abilities_of_runs = {"predict"} if cls.is_tagger else abilities(cls, tiny.model)
        can = tuple(name for name in ABILITIES if name in abilities_of_runs)
        entries.append(Paper(slug, tiny.paper["title"], tiny.paper["authors"], tiny.paper["year"], can, names))
    return entries
