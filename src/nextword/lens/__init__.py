"""Looking in: what a model does with a text, token by token."""
