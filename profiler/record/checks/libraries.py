"""Which of the libraries that hooks know are installed where training happens."""

from __future__ import annotations

import json
from typing import Final

from profiler.core.capability import NOT_KNOWN, YES, Answer
from profiler.record.checks import Place
from profiler.record.checks._child import ChildError, answer_of

_KNOWN: Final = (
    "transformers",
    "lightning",
    "pytorch-lightning",
    "accelerate",
    "datasets",
    "tokenizers",
    "sentencepiece",
)
_ASK: Final = """
import json, sys
from importlib import metadata
found = {}
for name in sys.argv[1:]:
    try:
        found[name] = metadata.version(name)
    except metadata.PackageNotFoundError:
        pass
print(json.dumps(found))
"""


class LibrariesCheck:
    """Reads what is installed without importing it."""

    name = "libraries"
    title = "libraries known"
    order = 21
    needed = False
    patience_s = 15.0

    def look(self, place: Place) -> Answer:
        try:
            found = json.loads(answer_of([place.python, "-c", _ASK, *_KNOWN], 10.0))
        except ChildError as error:
            return Answer(NOT_KNOWN, str(error))
        if not found:
            return Answer(YES, f"none of {', '.join(_KNOWN)}: plain torch is followed as it is")
        return Answer(YES, ", ".join(f"{name} {version}" for name, version in found.items()))


PLUGIN = LibrariesCheck()
