"""Filters for training text, as GPT-3 used them (Brown et al. 2020, appendix A and C).

pipeline       all of them in order, from a corpus into a folder
quality        a classifier of good against raw text
dedup          near-duplicates (MinHash)
decontaminate  evaluation text in the training text
word_hashes    words and n-grams as hashes, which the others build on
"""
