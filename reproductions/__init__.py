"""Figures and tables of papers, reproduced with Stretto: one command for each, `python -m reproductions NAME`.

The pages in `docs/reproductions` compare what comes out with what the papers report.
"""
