"""Filters for training text, as in GPT-3 (Brown et al. 2020, appendices A and C).

pipeline       all filters in order, from a corpus into a folder: `nextword data NAME --out OUT`
quality        a classifier of good against raw text
dedup          near-duplicates (MinHash)
decontaminate  evaluation text in the training text
word_hashes    words and n-grams as hashes, the basis of the others
"""
