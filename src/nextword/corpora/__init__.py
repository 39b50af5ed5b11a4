"""TEXT: reading it, cutting it into documents, splitting it honestly, and knowing where the canon's data sets live.

Import this package for the front doors (`open_corpus`, `open_parallel`, `read`); each module beside it is one idea.
"""

from nextword.corpora.builtin import default_name
from nextword.corpora.corpus import Corpus
from nextword.corpora.document import Document
from nextword.corpora.leakage import leakage
from nextword.corpora.opening import how_read, open_corpus, open_whole
from nextword.corpora.parallel import Parallel, is_parallel, open_parallel
from nextword.corpora.readers import read

__all__ = [
    "Corpus",
    "Document",
    "Parallel",
    "default_name",
    "how_read",
    "is_parallel",
    "leakage",
    "open_corpus",
    "open_parallel",
    "open_whole",
    "read",
]
