"""Evaluation: how good a model is, in numbers that can be compared.

evaluate_run       a run on a split, logged in its folder; what `nextword evaluate` and the end of training call
likelihood         bits per byte, word and token perplexity; pseudo-likelihoods of masked models
neural_cache, dynamic   evaluation that adapts to the text it reads
contamination      documents that the training text contains, and the others
seq2seq            generated texts against references, and text-to-text tasks
few_shot, prompt_tasks      tasks posed as text, without training
lm_eval_adapter    a run as a model of EleutherAI's lm-evaluation-harness
record             write a run's result into its recipe
"""
