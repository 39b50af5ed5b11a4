"""GENERATION: from a model that can `step` to ids, and from ids to the moment to stop.

Nothing here knows a network or a tokenizer: a model is its `start` and `step`, and text enters only as bytes or
strings that the caller made of the ids.

    rules        what may be written next: temperature, top-k, top-p, typicality, repetition, bias
    choosing     one id of each row's scores
    sampling     one token after another, streaming or in batches
    contrastive  likely, and unlike what was said before
    beam         the best of many continuations, many searches side by side
    hypotheses   what a beam has written, and what that is worth
    leading      the greatest scores of a row, the first of equals first
    trails       no n-gram twice, where rows change places at every step
    stopping     when to stop, and which text to hold back until that is known
    words        the likeliest next words, whole, from a model of sub-words
"""
