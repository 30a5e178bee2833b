"""Holds the rules by topic: each recognizes one cause of slowness and tells what to do about it.

`profiler.diagnose.rule` describes what a rule is. To add one, add a function with the decorator `rule` to the file of
its topic, and its test in tests/diagnose/rules. Files that begin with an underscore help several topics.
"""
