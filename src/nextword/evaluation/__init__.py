"""How good a model is: likelihood on held-out text, in numbers that can be compared."""
