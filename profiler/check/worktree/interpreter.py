"""Which Python a command runs, and what that one says of itself."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from profiler.core.errors import ProfilerError

_PYTHON: Final = re.compile(r"python(\d+(\.\d+)?)?t?")
_LONG: Final = re.compile(r"""'''exec' "?([^"]+?)"? "\$0" """)
"""What pip writes into a script's second line where a path is too long for the system to read in the first."""
_LINE: Final = 4096
_PATIENCE_S: Final = 60.0
"""For an interpreter to start and name its packages: a second, minutes on a cold network disk."""
_ASK: Final = """
import json, sys, platform
from importlib import metadata
places = [entry for entry in sys.path if entry]
for finder in sys.meta_path:
    module = sys.modules.get(getattr(finder, "__module__", ""))
    for path in getattr(module, "MAPPING", {}).values():
        places.append(str(path).rpartition("/")[0])
packages, copies = {}, {}
for one in metadata.distributions():
    name = (one.metadata["Name"] or "").lower().replace("_", "-")
    packages.setdefault(name, one.version)
    url = json.loads(one.read_text("direct_url.json") or "{}")
    if url.get("url", "").startswith("file://") and "dir_info" in url:
        copies.setdefault(name, [url["url"][7:], bool(url["dir_info"].get("editable"))])
print(json.dumps({
    "executable": sys.executable,
    "bin": sys.executable.rpartition("/")[0],
    "version": [sys.implementation.name, platform.python_version(), platform.machine(), sys.base_prefix],
    "places": places, "packages": packages, "local": copies,
}))
"""


@dataclass(frozen=True, slots=True)
class Interpreter:
    """A Python, as it found itself when it was started."""

    executable: str
    version: tuple[str, ...]
    """Implementation, version, machine, and where its standard library is."""
    places: tuple[str, ...]
    """Where it finds modules, editable installs included, without the folder of the program."""
    packages: Mapping[str, str]
    """Name -> version of what is installed."""
    local: Mapping[str, tuple[str, bool]]
    """Name -> (folder, editable) of what was installed from a folder."""

    @property
    def scripts(self) -> Path:
        """The folder of its console scripts."""
        return Path(self.executable).parent


def interpreter_of(argv: Sequence[str], cwd: Path) -> str:
    """The Python that `argv` runs: its first word, that of a console script, or what a shell would find."""
    program = shutil.which(argv[0]) if "/" not in argv[0] else str(cwd / argv[0])
    if program and is_python(program):
        return os.path.normpath(program)
    if program and (found := python_of(Path(program))):
        return found
    for word in argv[1:]:  # behind env, nice, taskset, ...
        if is_python(word) and (found := shutil.which(word)):
            return found
    return shutil.which("python") or shutil.which("python3") or sys.executable


def is_python(word: str) -> bool:
    """Whether a word of a command line is an interpreter."""
    return _PYTHON.fullmatch(Path(word).name) is not None


def python_of(script: Path) -> str | None:
    """The interpreter of a console script, by its first line; None: it is none."""
    try:
        with script.open("rb") as file:
            first, second = (file.readline(_LINE).decode("utf-8", "replace").strip() for _ in range(2))
    except OSError:
        return None
    words = first.removeprefix("#!").split() if first.startswith("#!") else []
    if words and is_python(words[0]) and Path(words[0]).exists():
        return words[0]
    if long := _LONG.match(second):
        return long[1] if is_python(long[1]) and Path(long[1]).exists() else None
    return None


def asked(python: str, cwd: Path) -> Interpreter:
    """What `python` says of itself in the user's environment.

    :raises ProfilerError: it does not run.
    """
    try:
        done = subprocess.run(
            [python, "-c", _ASK],
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_PATIENCE_S,
            check=False,
        )
        said = json.loads(done.stdout.splitlines()[-1])
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ProfilerError(f"cannot ask {python} what it imports: {error}") from error
    except (ValueError, IndexError) as error:
        last = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        raise ProfilerError(f"cannot ask {python} what it imports: {last}") from error
    return Interpreter(
        executable=said["executable"],
        version=tuple(said["version"]),
        places=tuple(said["places"]),
        packages=said["packages"],
        local={name: (folder, editable) for name, (folder, editable) in said["local"].items()},
    )
