"""TEXT: reading it, cutting it into documents, splitting it honestly, and knowing where the canon's data sets live.

Import this package for the front door (`open_corpus`, `read`); the modules beside it are one idea each.
"""

from nextword.corpora.builtin import default_name
from nextword.corpora.corpus import Corpus
from nextword.corpora.document import Document
from nextword.corpora.leakage import leakage
from nextword.corpora.opening import open_corpus, open_whole
from nextword.corpora.readers import read

__all__ = ["Corpus", "Document", "default_name", "leakage", "open_corpus", "open_whole", "read"]
