"""Finds the Python interpreter that a command runs, and what that has installed."""

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
_LONG_SHEBANG: Final = re.compile(r"""'''exec' "?([^"]+?)"? "\$0" """)
"""pip writes this into a script's second line where the path is too long for the first."""
_LINE_BYTES: Final = 4096
_PATIENCE_S: Final = 60.0
"""For an interpreter to start and list its packages: a second, on a cold network disk minutes."""
_INSPECT: Final = """
import json, sys, platform
from importlib import metadata
paths = [entry for entry in sys.path if entry]
for finder in sys.meta_path:
    module = sys.modules.get(getattr(finder, "__module__", ""))
    for path in getattr(module, "MAPPING", {}).values():
        paths.append(str(path).rpartition("/")[0])
packages, local = {}, {}
for distribution in metadata.distributions():
    name = (distribution.metadata["Name"] or "").lower().replace("_", "-")
    packages.setdefault(name, distribution.version)
    url = json.loads(distribution.read_text("direct_url.json") or "{}")
    if url.get("url", "").startswith("file://") and "dir_info" in url:
        local.setdefault(name, [url["url"][7:], bool(url["dir_info"].get("editable"))])
print(json.dumps({
    "executable": sys.executable,
    "version": [sys.implementation.name, platform.python_version(), platform.machine(), sys.base_prefix],
    "import_paths": paths, "packages": packages, "local": local,
}))
"""


@dataclass(frozen=True, slots=True)
class Interpreter:
    """A Python interpreter with its environment."""

    executable: str
    version: tuple[str, ...]
    """Implementation, version, machine, and the prefix of its standard library."""
    import_paths: tuple[str, ...]
    """Where it finds modules, editable installs included, without the folder of the program."""
    packages: Mapping[str, str]
    """Installed package -> version."""
    local: Mapping[str, tuple[str, bool]]
    """Package that was installed from a folder -> (folder, whether it is editable)."""

    @property
    def scripts(self) -> Path:
        """The folder of its console scripts."""
        return Path(self.executable).parent


def find_interpreter(argv: Sequence[str], cwd: Path) -> str:
    """The Python that `argv` runs: its first word, that of a console script, or the one that a shell would find."""
    program = shutil.which(argv[0]) if "/" not in argv[0] else str(cwd / argv[0])
    if program and is_python(program):
        return os.path.normpath(program)
    if program and (python := script_interpreter(Path(program))):
        return python
    for argument in argv[1:]:  # after env, nice, taskset, ...
        if is_python(argument) and (python := shutil.which(argument)):
            return python
    return shutil.which("python") or shutil.which("python3") or sys.executable


def is_python(argument: str) -> bool:
    """Whether an argument of a command line names an interpreter."""
    return _PYTHON.fullmatch(Path(argument).name) is not None


def script_interpreter(script: Path) -> str | None:
    """The Python of a console script, from its first lines; None if it is not such a script."""
    try:
        with script.open("rb") as file:
            first, second = (file.readline(_LINE_BYTES).decode("utf-8", "replace").strip() for _ in range(2))
    except OSError:
        return None
    shebang = first.removeprefix("#!").split()[:1] if first.startswith("#!") else []
    match = _LONG_SHEBANG.match(second)
    candidates = [*shebang, *([match[1]] if match else [])]
    return next((python for python in candidates if is_python(python) and Path(python).exists()), None)


def inspect_interpreter(python: str, cwd: Path) -> Interpreter:
    """Start `python` in the user's environment and have it list what it can import.

    :raises ProfilerError: it does not run.
    """
    try:
        process = subprocess.run(
            [python, "-c", _INSPECT],
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_PATIENCE_S,
            check=False,
        )
        answer = json.loads(process.stdout.splitlines()[-1])
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ProfilerError(f"cannot find out what {python} imports: {error}") from error
    except (ValueError, IndexError) as error:
        last = (process.stderr.strip().splitlines() or [f"exit code {process.returncode}"])[-1]
        raise ProfilerError(f"cannot find out what {python} imports: {last}") from error
    return Interpreter(
        executable=answer["executable"],
        version=tuple(answer["version"]),
        import_paths=tuple(answer["import_paths"]),
        packages=answer["packages"],
        local={name: (folder, editable) for name, (folder, editable) in answer["local"].items()},
    )
