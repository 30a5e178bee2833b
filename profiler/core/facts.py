"""Facts about a program and its machine, from a manifest, as text for people; names of devices and programs."""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from profiler.core.units import size

INTERNAL_FACTS: Final = frozenset({
    "affinity", "changed_loader", "gc_calls", "hooks", "loaders", "main", "module_hooks", "operators", "optimizers",
    "package", "processes", "rank_cores", "setting_lines", "torch_folder", "trace", "unused_gradients", "versions_of",
})  # fmt: skip
"""Facts that reports do not list: on which cores a process may run, whether `try` changed a loader, lines that collect
garbage, which hooks came in, settings of loaders and optimizers, the lines of other settings and of hooks,
the operators of a step, whose code is where, a trace's clock, the search for gradients that nothing reads, whose
versions."""
HOST_DEVICE: Final = "host device (CPU)"
_DEVICE_NAMES: Final = {"host": HOST_DEVICE, "cpu": "CPU"}
_KINDS: Final = {"cuda": "GPU"}
"""Names of devices that have no label."""
_LAUNCHERS: Final = frozenset({
    "torchrun", "torch.distributed.run", "torch.distributed.launch",
    "accelerate", "accelerate.commands.launch", "accelerate.commands.accelerate_cli", "deepspeed",
})  # fmt: skip
"""Programs and modules that start the user's program, whose script or module follows their own options."""
_PYTHON: Final = re.compile(r"python[\d.]*t?")
_OPTIONS_WITH_VALUES: Final = ("-W", "-X", "--check-hash-based-pycs")
"""Options of Python whose value is the next word."""

CHANGED: Final = "+changes"
"""What follows the hash of a commit where tracked files of its checkout differ from it."""
UNKNOWN_CHANGES: Final = "+unknown"
"""What follows it where git did not tell that in time."""


def repository_folder(folder: Path) -> Path | None:
    """Return the nearest folder with a .git at or above `folder`; None where there is none."""
    return next((above for above in (folder, *folder.parents) if (above / ".git").exists()), None)


def fact_rows(facts: Mapping[str, Any], prefix: str = "", skip: Sequence[str] = ()) -> dict[str, str]:
    """Return a mapping and those within it as name -> text, without unknown and internal facts."""
    rows: dict[str, str] = {}
    for key, value in facts.items():
        name = f"{prefix}{key}".replace("_", " ")
        if key in skip or key in INTERNAL_FACTS or value is None or value == {}:
            continue
        if isinstance(value, Mapping):
            rows |= fact_rows(value, f"{key} ")
        elif isinstance(value, (list, tuple)):
            rows[name] = ", ".join(map(str, value)) or "none"
        elif key.endswith("_bytes") and isinstance(value, (int, float)):
            rows[name.removesuffix(" bytes")] = size(value)
        else:
            rows[name] = str(value)
    return rows


def stated_device(facts: Mapping[str, Any], devices: Iterable[Mapping[str, Any]]) -> str:
    """Name of a run's device: by the program's facts `device` and `device_label`, else by its GPUs."""
    kind, label = str(facts.get("device", "")), str(facts.get("device_label", ""))
    if kind in _DEVICE_NAMES:  # the host device is never called a GPU
        return label if kind == "cpu" and label.lower() not in ("", "cpu") else _DEVICE_NAMES[kind]
    labels = [label] if label else [str(device.get("name", "")) for device in devices]
    return ", ".join(dict.fromkeys(filter(None, labels))) or _KINDS.get(kind, kind) or "device not named"


def with_python(argv: Sequence[str]) -> tuple[str, ...]:
    """Return a command with this Python before a script that cannot start by itself, as in `run train.py`."""
    is_script = bool(argv) and argv[0].endswith(".py") and Path(argv[0]).is_file()
    return (sys.executable, *argv) if is_script and shutil.which(argv[0]) is None else tuple(argv)


def program(argv: Sequence[str]) -> str:
    """Return the Python script or module that a command runs, of a launcher the one that it starts; empty for none."""
    words = iter(argv)
    for word in words:
        name = word.rpartition("/")[2]
        if name in _LAUNCHERS:
            return _started_by_launcher(words) or name
        if is_python(name):
            return _started_by_python(words)
        if word.endswith(".py"):
            return word
    return ""


def _started_by_python(words: Iterator[str]) -> str:
    """Return the script or the module that follows the options of Python."""
    for word in words:
        # single letters may be combined, and what follows c, m, W and X belongs to them
        letter = next((char for char in word[1:] if char in "cmWX"), "") if re.match("-[^-]", word) else ""
        if letter == "c":
            break
        if word in _OPTIONS_WITH_VALUES:
            next(words, "")
        elif letter == "m" or not word.startswith("-"):
            started = (word.partition("m")[2] or next(words, "")) if letter else word
            is_launcher = started.rpartition("/")[2] in _LAUNCHERS
            return (_started_by_launcher(words) if is_launcher else "") or started
    return ""


def _started_by_launcher(words: Iterator[str]) -> str:
    for word in words:
        if word in ("-m", "--module"):
            return next(words, "")
        if word.endswith(".py"):
            return word
    return ""


def is_plain_python(argv: Sequence[str]) -> bool:
    """Tell whether a command is Python with a program, without a launcher such as torchrun."""
    names = [word.rpartition("/")[2] for word in argv]
    return is_python(names[0]) and _LAUNCHERS.isdisjoint(names) if names else False


def is_python(word: str) -> bool:
    """Tell whether a word of a command names an interpreter."""
    return _PYTHON.fullmatch(word.rpartition("/")[2]) is not None


def starts_programs(word: str) -> bool:
    """Tell whether a word of a command is Python or a launcher."""
    return word.rpartition("/")[2] in _LAUNCHERS or is_python(word)


def program_name(argv: Sequence[str]) -> str:
    """Return a short name of a command: the script, the module after -m, or the program."""
    name = Path(argv[0]).name
    started = program(argv) if starts_programs(name) else ""
    return started.rpartition("/")[2].removesuffix(".py") or (name if is_python(name) else Path(name).stem)
