"""TEXT: reading it, cutting it into documents, splitting it honestly, and knowing where the canon's data sets live.

Import this package for the front doors (`open_corpus`, `open_parallel`, `read`); each module beside it is one idea.
"""
