"""Holds the template, style sheet and script of the HTML report, which are inlined into one file."""
