"""Turns measurements into diagnoses of runs, comparisons and running programs, which `profiler.report` words."""
