"""Right of the wall: pure functions from a `Run` to values, one question a file; `analyse` puts them together."""

from profiler.analyse.analysis import analyse

__all__ = ["analyse"]
