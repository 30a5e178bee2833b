"""Turns measurements into diagnoses of runs, comparisons and running programs; `profiler.report.verdict_text` words
them."""
