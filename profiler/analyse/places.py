"""Whose code a file is: the user's own, torch's, another library's or ours.

Told by the path, and where hooks were in the program by what they know of it: our own folder there, torch's, and the
user's package where it runs as an installed one.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from pathlib import PurePosixPath
from typing import Final

from profiler.run.model import Run

USER, TORCH, LIBRARY, OURS = "user", "torch", "library", "ours"
COMPILED: Final = "/torchinductor_"
"""Folder of the code that torch.compile writes."""

_OURS: Final = ("agent/", "inside/", "marks.py")
"""What of our package runs in the program; `inside/` is the name of `agent/` in runs recorded by version 0.1."""
_PACKAGES: Final = re.compile(r".*/(?:site|dist)-packages/")
_STANDARD: Final = re.compile(r".*/lib(?:64)?/(?:python3(?:\.\d+)?|pypy3(?:\.\d+)?)/(?:lib-dynload/)?")
_TYPED: Final = ("<stdin>", "<string>", "<ipython-input", "<python-input", "<console>", "<input>", "<command-", "<cell")
"""File names of the user's code that no file holds; all others in angle brackets are of code that libraries make."""


@dataclass(frozen=True, slots=True)
class Places:
    """Where the packages of one program lie; empty: not known, the path alone tells."""

    ours: str = ""
    """Folder of our package."""
    torch: str = ""
    """Folder of torch, which may be a source tree."""
    main: str = ""
    """Name of the user's package, which may be installed."""


USUAL: Final = Places()


def places_of(run: Run) -> Places:
    """What hooks said of the program."""
    said = (run.info.facts.get(name) for name in ("package", "torch_folder", "main"))
    return Places(*(value.rstrip("/") if isinstance(value, str) else "" for value in said))


def relative(file: str, places: Places = USUAL) -> str:
    """The path below the folder of packages or of the standard library; the whole path of a user's file."""
    if places.torch and file.startswith(places.torch + "/"):
        return "torch" + file[len(places.torch) :]
    for folder in (_PACKAGES, _STANDARD):
        if found := folder.match(file):
            return file[found.end() :]
    return file


@lru_cache(maxsize=1 << 16)
def kind_of(file: str, places: Places = USUAL) -> str:
    """USER, TORCH, LIBRARY (other packages, the standard library, frozen code) or OURS."""
    ours = f"{places.ours or '/profiler'}/"
    if any(file.startswith(ours + part) if places.ours else ours + part in file for part in _OURS):
        return OURS
    if file.startswith("<"):
        return USER if file.startswith(_TYPED) else LIBRARY
    path = relative(file, places)
    if COMPILED in file or (path != file and path.startswith("torch/")):
        return TORCH
    if path != file:
        return USER if places.main and path.startswith((f"{places.main}/", f"{places.main}.py")) else LIBRARY
    pure = PurePosixPath(file)
    launcher = pure.parent.name == "bin" and not pure.suffix  # torchrun, accelerate: scripts that packages install
    return LIBRARY if launcher or not file else USER
