"""Holds the checks of `doctor`: functions with `profiler.record.doctor.check`, found in every module here."""
