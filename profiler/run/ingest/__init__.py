"""Reads traces of torch's profiler, alone or as a part of a run."""
