"""Compare models: train each on one text under one budget, score all on the same held-out bytes, and report.

compare.py       the plan of a comparison, and running it
translation.py   the same for sequence-to-sequence models, on pairs
terminal.py      the live table and the leaderboard in the terminal
report.py        the HTML report
"""
