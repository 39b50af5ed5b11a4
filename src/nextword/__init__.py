"""nextword: the language models of the literature, trained, compared and used in the same way.

A first tour:

    import nextword

    # Train a small LSTM on the built-in text, evaluate it, and write its model card.
    result = nextword.train("lstm/tiny", "runs/lstm")

    # Use it: plain strings in, plain values out.
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

from nextword.api import (
    ComparisonResult,
    EvaluationResult,
    Paper,
    TrainingResult,
    compare,
    convert,
    evaluate,
    load,
    papers,
    predict,
    train,
    transfer,
)
from nextword.core.errors import NextwordError

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
