"""Byte code of a revision's modules: laid down before the first start where the working tree has its own.

Python keeps byte code from the first import on, beside the module or below PYTHONPYCACHEPREFIX. A working tree that ran
before has it and a fresh worktree has none: its side would start later in the first round, with a heap in which modules
were compiled. Both sides keep the user's settings for byte code: a folder of our own for both would be even too, and
would have all of torch compiled anew for every check.
"""

from __future__ import annotations

import os
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Final

_COMPILE: Final = """
import importlib.util, os, py_compile, sys

def current(source):
    try:
        with open(importlib.util.cache_from_source(source), "rb") as file:
            head = file.read(16)
        about = os.stat(source)
    except (OSError, NotImplementedError):
        return False
    if head[:4] != importlib.util.MAGIC_NUMBER:
        return False
    of_source = [int(about.st_mtime) & 0xFFFFFFFF, about.st_size & 0xFFFFFFFF]
    return bool(head[4] & 1) or [int.from_bytes(head[at:at + 4], "little") for at in (8, 12)] == of_source

root, tree = sys.argv[1:]
for folder, folders, names in os.walk(tree):
    folders[:] = [name for name in folders if name != ".git"]
    for name in names:
        there = os.path.join(folder, name)
        if name.endswith(".py") and current(root + there[len(tree):]):
            py_compile.compile(there, quiet=2, invalidation_mode=py_compile.PycInvalidationMode.TIMESTAMP)
"""
"""Run by the Python of the sides: every version has its own byte code. Files with bit 0 of the flags have a hash and no
date (PEP 552)."""


def lay_bytecode(python: str, root: Path, tree: Path) -> None:
    """Compile the modules below `tree` whose counterparts below `root` have byte code that Python would load.

    About 1 ms for 100 lines of source. A module that does not compile is left to the program.
    """
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    with suppress(OSError):
        subprocess.run(
            [python, "-S", "-c", _COMPILE, str(root), str(tree)],
            cwd=tree.parent,  # a module of the program's in the current folder would be imported in place of Python's
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
        )
