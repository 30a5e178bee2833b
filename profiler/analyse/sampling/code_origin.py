"""Whose code a file is: the user's, torch's, another library's or ours; and how its path is shown.

The path tells it. Where hooks were in the program, they also recorded the folders of our package and of torch, and the
name of the user's package, which may be installed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from pathlib import PurePath, PurePosixPath
from typing import Any, Final

from profiler.run.model import Run, Site

USER, TORCH, LIBRARY, OURS = "user", "torch", "library", "ours"
COMPILED: Final = "/torchinductor_"
"""Folder of the code that torch.compile writes."""

_OUR_PARTS: Final = ("agent/", "inside/", "marks.py")
"""Parts of our package that run in the program; `inside/` is the name of `agent/` in runs recorded by version 0.1."""
_PACKAGES: Final = re.compile(r".*/(?:site|dist)-packages/")
_STANDARD: Final = re.compile(r".*/lib(?:64)?/(?:python3(?:\.\d+)?|pypy3(?:\.\d+)?)/(?:lib-dynload/)?")
_TYPED: Final = ("<stdin>", "<string>", "<ipython-input", "<python-input", "<console>", "<input>", "<command-", "<cell")
"""File names of user code that no file holds; all others in angle brackets are of code that libraries generate."""


@dataclass(frozen=True, slots=True)
class PackageFolders:
    """Where the packages of a program are; empty: unknown, the path alone tells."""

    ours: str = ""
    torch: str = ""
    """Folder of torch, which may be a source tree."""
    main: str = ""
    """Name of the user's package, which may be installed."""


USUAL: Final = PackageFolders()


def package_folders(run: Run) -> PackageFolders:
    """The folders that hooks recorded."""
    facts = (run.info.facts.get(name) for name in ("package", "torch_folder", "main"))
    return PackageFolders(*(value.rstrip("/") if isinstance(value, str) else "" for value in facts))


def relative_path(file: str, folders: PackageFolders = USUAL) -> str:
    """The path below the folder of packages or of the standard library; the full path of a user's file."""
    if folders.torch and file.startswith(folders.torch + "/"):
        return "torch" + file[len(folders.torch) :]
    for pattern in (_PACKAGES, _STANDARD):
        if match := pattern.match(file):
            return file[match.end() :]
    return file


@lru_cache(maxsize=1 << 16)
def code_owner(file: str, folders: PackageFolders = USUAL) -> str:
    """USER, TORCH, LIBRARY (other packages, the standard library, frozen code) or OURS."""
    ours = f"{folders.ours or '/profiler'}/"
    if any(file.startswith(ours + part) if folders.ours else ours + part in file for part in _OUR_PARTS):
        return OURS
    if file.startswith("<"):
        return USER if file.startswith(_TYPED) else LIBRARY
    path = relative_path(file, folders)
    if COMPILED in file or (path != file and path.startswith("torch/")):
        return TORCH
    if path != file:
        return USER if folders.main and path.startswith((f"{folders.main}/", f"{folders.main}.py")) else LIBRARY
    pure = PurePosixPath(file)
    is_launcher = pure.parent.name == "bin" and not pure.suffix  # torchrun, accelerate: scripts that packages install
    return LIBRARY if is_launcher or not file else USER


def working_folder(run: Run) -> str:
    """The working directory of the program where it is recorded; else the folder of its script."""
    folder: Any = run.info.facts.get("cwd") or run.info.host.get("cwd")
    if folder:
        return str(folder)
    script = next((word for word in run.info.argv if word.endswith(".py") and word.startswith("/")), "")
    return str(PurePath(script).parent) if script else ""


def relative_site(site: Site, folder: str) -> Site:
    """The site with its file relative to `folder` where it is below that."""
    file = PurePath(site.file)
    if folder and file.is_relative_to(folder) and str(file) != folder:
        return Site(str(file.relative_to(folder)), site.line, site.function)
    return site
