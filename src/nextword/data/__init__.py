"""Text and task data: from files and names to documents, pairs and labeled rows.

Language models:

    opening         open_corpus: a path, a name or standard input → Corpus
    corpus          Corpus: documents by split, with splits from file names or by hash
    readers         files of any format → documents
    segmentation    sentences, words, passages
    builtin         data without files: two Bibles, the Python reference, tagged lines of Python
    mixture         weighted mixtures of corpora
    filters/        quality, near-duplicates, decontamination

Pairs of a source and a target:

    parallel        open_parallel: a path or name → ParallelCorpus
    parallel_files  aligned files and tables of pairs
    text_to_text    named tasks as text-to-text pairs, mixed (T5)

Tasks:

    tables          csv, tsv, JSON lines: delimiters, rows, columns, labeled examples
    conll           tagged sentences: CoNLL, CoNLL-U, Penn Treebank
    tag_schemes     IOB1, IOB2, BIOES, BILOU
    squad           questions and answers
    word_vectors    GloVe, word2vec, fastText

Shared:

    describe        what `nextword data` lists and shows
    catalog         named data sets (catalog.toml): find, install, download
    files           bytes → text: compression, archives, UTF-8, lines, JSON lines, TOML
"""
