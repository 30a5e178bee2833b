"""Starts a program, samples it from outside, and writes the run directory. Analyses nothing.

The package can be called: `profiler.record(path)` records the program that calls it (profiler.record.session). It has
the name of that function, and a package that is imported takes its name in the package above.
"""

import sys
from types import ModuleType
from typing import Any


class _Callable(ModuleType):
    def __call__(self, *args: Any, **options: Any) -> Any:
        from profiler.record.session import record

        return record(*args, **options)


sys.modules[__name__].__class__ = _Callable
