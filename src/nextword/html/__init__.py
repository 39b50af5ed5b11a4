"""HTML reports: one self-contained page with its style, tables and inline SVG charts.

page.py         the page itself, its tables and sentences
charts.py       line, scatter and calibration charts, heat maps, texts colored by surprisal; the colors are in page.css
formatting.py   numbers for people, escaping
"""
