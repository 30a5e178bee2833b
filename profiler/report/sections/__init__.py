"""The sections of a report, declared with `profiler.report.build.section` and listed in the `PLUGINS` of a module."""
