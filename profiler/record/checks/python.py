"""The Python that trains: its version and build."""

from __future__ import annotations

import json
from typing import Final

from profiler.core.capability import NO, PARTLY, YES, Answer
from profiler.record.checks import Place
from profiler.record.checks._child import ChildError, answer_of

_OLDEST: Final = (3, 11)
_ASK: Final = (
    "import json, platform, sys, sysconfig; print(json.dumps([list(sys.version_info[:3]), "
    "platform.python_implementation(), bool(sysconfig.get_config_var('Py_GIL_DISABLED')), "
    "bool(sysconfig.get_config_var('Py_DEBUG'))]))"
)


class PythonCheck:
    """Asks the interpreter itself: it may be another than ours."""

    name = "python"
    title = "Python"
    order = 10
    needed = True
    patience_s = 15.0

    def look(self, place: Place) -> Answer:
        try:
            version, build, free_threaded, debug = json.loads(answer_of([place.python, "-c", _ASK], 10.0))
        except ChildError as error:
            return Answer(NO, f"{place.python}: {error}", "name the Python that trains: doctor --python EXE")
        words = f"{build} {'.'.join(map(str, version))} at {place.python}"
        if build != "CPython" or tuple(version[:2]) < _OLDEST:
            return Answer(
                NO, f"{words}: CPython 3.11 or later is needed", "make an environment with Python 3.11 or later"
            )
        if free_threaded or debug:
            kind = "free-threaded" if free_threaded else "debug"
            return Answer(PARTLY, f"{words}, a {kind} build, on which nothing of ours was tried")
        return Answer(YES, words)


PLUGIN = PythonCheck()
