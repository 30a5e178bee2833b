"""Holds the sections of a report; each is declared with `profiler.report.build.section` and is one of `PLUGINS`."""
