"""Text-level models: plain strings in, plain values out. base.py has the contract, loading.py opens a run folder."""
