"""N-gram language models: from a text to counts, probabilities, a trie, and a file.

counting       every n-gram of a text with its counts, and Kneser-Ney's continuation counts
discounts      how much of each count goes to unseen words: absolute, (modified) Kneser-Ney, Good-Turing
estimators     from counts to probabilities: eight estimators, interpolated or back-off
trie           the back-off model as plain arrays
pruning        drop n-grams by relative entropy
interpolation  mix models with fitted weights; the cache model
layouts        binary files: hash_layout (`fast`) and trie_layout (`compact`)
arpa           ARPA files
"""

from __future__ import annotations
