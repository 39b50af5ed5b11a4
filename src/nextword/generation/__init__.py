"""Generation: from a model that can `step` to ids, and from ids to the moment to stop.

Nothing here knows a network or a tokenizer by name. A model is its `start` and `step`; text enters only as bytes or
strings that the caller made from ids.

    logits_processors  what may be generated next: temperature, top-k, top-p, typicality, repetition, bias
    sampling           token by token, greedy, sampled or by contrastive search; one row, or many side by side
    beam_search        the best of many continuations, many searches side by side
    infilling          blanks in a text, filled by masked, span-generating and sequence-to-sequence networks
    whole_words        the most probable next words, whole, from a model of sub-words
    stopping           when to stop, and which text to hold back until that is known
"""
