"""What a person sees while a call works: in a terminal, in a notebook, or as plain lines.

display      the two consoles, ProgressDisplay, and Ctrl-C
training     the events of `train`
transfer     the plan and the events of `transfer`
comparison   the models of `compare`
"""
