"""What every other package builds on, without a dependency on any of them.

types      the value types that are passed around: Document, Encoding, Inputs, Batch, Loss, Score … Read it first
protocols  what a network or an objective can do: Autoregressive, Infilling, Encoder, Objective …
errors     errors that a user can fix, with fields
pytree     operations on recurrent states and KV caches (nested tensors)
io         atomic writes, compressed files, infinite numbers in JSON
jit        Numba compilation and threads
"""
