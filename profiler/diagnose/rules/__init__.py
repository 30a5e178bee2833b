"""Holds the rules, one per file: each recognizes one cause of slowness and tells what to do about it.

`profiler.diagnose.rule` describes what a rule is. To add one, add a file with a `PLUGIN`, its test in
tests/diagnose/rules.
"""
