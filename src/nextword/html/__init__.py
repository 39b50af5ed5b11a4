"""HTML reports: one self-contained page with its style, tables and inline SVG charts.

page.py         the page itself, its tables and sentences
charts.py       line, scatter and calibration charts
heat_map.py     attention maps and confusion matrices
surprisal.py    a text whose tokens are colored by surprisal; the colors are --surprisal-0 … 7 in page.css
formatting.py   numbers for people, escaping
"""
