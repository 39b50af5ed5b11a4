"""`nextword serve`: language models over HTTP, and the engine behind it, which Python can use as well.

requests      what is asked of a model and what comes back: the value types of the engine
engine        one thread for each network: many requests side by side, token by token
prefix_cache  the states after prompts, so that a longer prompt is read from where a shorter one ended
pool          several models by name: loaded on first use, unloaded when memory is short
"""
