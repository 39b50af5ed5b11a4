"""Training: one loop for every network and objective (trainer.py), from a recipe to a run folder (train.py)."""
