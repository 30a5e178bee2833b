"""Ways in which a run directory or a trace may be damaged, from the simplest to what a hostile author would write."""

from __future__ import annotations

import json
import os
import random
import shutil
import struct
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

from profiler.run import tables
from profiler.run.declared import Facts

Damage = Callable[[Path], object]
DEEP: Final = b'{"a":' * 100_000
WEIRD: Final[tuple[Any, ...]] = (
    None, True, [], {}, [1, {"a": 2}], {"x": [1]}, "", "\ud800", "x" * 5000, -1, 0, 1e308, 10**25, -(10**25), 2**63,
    float("nan"), float("inf"), "NaN", "1e400", 3.5,
)  # fmt: skip
"""Values that are of another type, or beyond what is expected."""


def source(run: Path) -> Path:
    """The folder of the first process."""
    return min(run.glob("source-*"))


def _write(name: str, content: bytes, run: Path) -> None:
    for path in run.glob(name):
        path.write_bytes(content)


def _make(name: str, content: str, run: Path) -> None:
    (run / name).parent.mkdir(exist_ok=True)
    (run / name).write_text(content)


def _replace(name: str, make: Callable[[Path], None], run: Path) -> None:
    path = next(iter(run.glob(name)), source(run) / name.rpartition("/")[2])
    path.unlink(missing_ok=True)
    make(path)


def _change(name: str, fields: dict[str, Any], run: Path) -> None:
    """Change fields of a JSON file; `facts` are changed one by one."""
    for path in run.glob(name):
        content = json.loads(path.read_text())
        facts = {**content.get("facts", {}), **fields.get("facts", {})}
        path.write_text(json.dumps({**content, **fields, "facts": facts}))


def _append(name: str, lines: bytes, run: Path) -> None:
    for path in run.glob(name):
        path.write_bytes(path.read_bytes() + lines)


def _numbers(table: str, value: int, run: Path) -> None:
    """Write a number over the fields of every third record."""
    size = tables.packer(table).size
    for path in run.glob(f"*/{table}.bin"):
        content = bytearray(path.read_bytes())
        for at in range(0, len(content) - size + 1, 3 * size):
            for field in range(0, size - 7, 8):
                struct.pack_into("<q", content, at + field, value)
        path.write_bytes(content)


def _grow(name: str, size: int, run: Path) -> None:
    with (source(run) / name).open("ab") as file:
        file.truncate(size)


def _folders_for_files(run: Path) -> None:
    for path in [path for path in run.rglob("*") if path.is_file() and path.name != _MANIFEST]:
        path.unlink()
        path.mkdir()


def _files_for_folders(run: Path) -> None:
    for path in [path for path in run.iterdir() if path.is_dir()]:
        shutil.rmtree(path)
        path.write_bytes(b"x")


def _reverse(table: str, run: Path) -> None:
    size = tables.packer(table).size
    for path in run.glob(f"*/{table}.bin"):
        content = path.read_bytes()
        path.write_bytes(b"".join(content[at : at + size] for at in reversed(range(0, len(content), size))))


_META, _MANIFEST, _ALL_FACTS = "source-*/source.json", "run.json", tuple(Facts.__annotations__.keys() - {"counted"})
_LONG_STACK: Final = json.dumps({"id": 0, "frames": [["f.py", 1, "g"]] * 50_000}).encode() + b"\n"
_BAD_TRIALS: Final = [{"rule": 5, "factor": "x"}, None, []]
_STATUS: Final = {"name": "hooks", "state": "ok", "code": "hooks-loaded", "values": {"python": "x"}}

DAMAGES: Final[dict[str, Damage]] = {
    **{f"facts of type {number}": partial(_change, _META, {"facts": dict.fromkeys(_ALL_FACTS, value)})
       for number, value in enumerate(WEIRD)},
    **{f"{table} of {value}": partial(_numbers, table, value)
       for table in ("boundaries", "calls", "stacks", "gil_stacks", "regions") for value in (-1, 1 << 62)},
    "deep facts": partial(_change, _META, {"facts": {"deep": json.loads("[" * 900 + "]" * 900)}}),
    "deep metadata": partial(_write, _META, DEEP),
    "metadata is a list": partial(_write, _META, b"[1]"),
    "huge pid": partial(_change, _META, {"pid": 10**30, "rank": -(10**20)}),
    "rank beyond 32 bits": partial(_change, _META, {"rank": 1 << 40}),
    "one rank for all": partial(_change, _META, {"rank": 0}),
    "damaged schema of a process": partial(_change, _META, {"schema": "x"}),
    "deep manifest": partial(_write, _MANIFEST, DEEP),
    "types of the manifest": partial(_change, _MANIFEST, {
        "begin": "x", "end": [], "argv": [1, None], "label": 5, "level": 7, "exit_code": "z", "started_at": 3,
        "host": {"cores": "a", "memory_bytes": {}, "environment": [1]}, "collectors": [{"name": 1}], "devices": [5],
    }),
    "numbers of the manifest": partial(_change, _MANIFEST, {"begin": 10**30, "started_at": "9999-99-99T00:00"}),
    "host is a list": partial(_change, _MANIFEST, {"host": [], "versions": 5, "devices": {"a": 1}}),
    "hooks without numbers": partial(_change, _MANIFEST, {"collectors": [_STATUS]}),
    "ids of names": partial(_append, "*/names.jsonl", b'{"id":-5}\n{"id":1e400,"text":"z"}\n{"id":NaN,"text":"q"}\n'),
    "line beyond 64 bits": partial(_append, "*/sites.jsonl", b'{"id":1,"file":"f","line":%d,"function":""}\n' % 10**30),
    "frames of a stack": partial(_append, "*/stacks.jsonl", b'{"id":0,"frames":[[1,2]]}\n{"id":1,"frames":{"a":1}}\n'),
    "1,000 damaged lines": partial(_append, "*/names.jsonl", b"{\n" * 1000),
    "names for a terminal": partial(_append, "*/names.jsonl", b'{"id":0,"text":"\\u001b]0;\\u0007</b>\\ud800"}\n'),
    "a stack of 50,000 frames": partial(_append, "*/stacks.jsonl", _LONG_STACK),
    "empty files": lambda run: [path.write_bytes(b"") for path in run.rglob("*.*") if path.name != _MANIFEST],
    "folders for files": _folders_for_files,
    "files for folders": _files_for_folders,
    "steps that run backwards": partial(_reverse, "steps"),
    "boundaries that run backwards": partial(_reverse, "boundaries"),
    "regions that run backwards": partial(_reverse, "regions"),
    "a folder whose name is no text": lambda run: source(run).rename(os.fsdecode(os.fsencode(run) + b"/source-7\xff")),
    "begin after end": partial(_change, _MANIFEST, {"begin": 1 << 62, "end": 5}),
    "a manifest of the future": partial(_change, _MANIFEST, {"schema": 999}),
    "a manifest in UTF-16": lambda run: (run / _MANIFEST).write_text((run / _MANIFEST).read_text(), encoding="utf-16"),
    "deep line": partial(_append, "*/stacks.jsonl", DEEP + b"\n"),
    "results": partial(_make, "source-77/results.jsonl", '{"name":"a","count":9,"values":[1,"x"]}\n[]\n5\n'),
    "trials": partial(_make, "trials.json", json.dumps({"schema": "trials/1", "trials": _BAD_TRIALS})),
    "trials are a folder": lambda run: (run / "trials.json").mkdir(),
    "source text": partial(_make, "source_text.json", '{"schema": "source-text/1", "files": {"a": 5}}'),
    "FIFO for sites": partial(_replace, "source-*/sites.jsonl", os.mkfifo),
    "FIFO for the manifest": partial(_replace, _MANIFEST, os.mkfifo),
    "FIFO for a table": partial(_replace, "source-*/regions.bin", os.mkfifo),
    "FIFO for a trace": partial(_replace, "kineto.json.gz", os.mkfifo),
    "device for names": partial(_replace, "source-*/names.jsonl", lambda path: path.symlink_to("/dev/zero")),
    "folder for names": partial(_replace, "source-*/names.jsonl", Path.mkdir),
    "link to itself": partial(_replace, "source-*/names.jsonl", lambda path: path.symlink_to(path)),
    "sparse table": partial(_grow, "steps.bin", 1 << 40),
    "folder with a huge pid": lambda run: (run / f"source-{'9' * 60}").mkdir(),
    "run in itself": lambda run: (run / "source-77").symlink_to(run),
    "no source": lambda run: source(run).rename(run / "other"),
    "manifest is gone": lambda run: (run / _MANIFEST).unlink(),
}  # fmt: skip
"""Name -> what it does to a run directory."""


def damages(count: int) -> Iterator[tuple[str, Damage]]:
    """All of these, and as many made of random changes."""
    yield from DAMAGES.items()
    for seed in range(count):
        yield f"seed {seed}", partial(_damage_at_random, seed)


def _damage_at_random(seed: int, run: Path) -> None:
    choice = random.Random(seed)
    path = choice.choice(sorted(path for path in run.rglob("*") if path.is_file()))
    content = bytearray(path.read_bytes())
    if choice.random() < 0.3:
        del content[choice.randrange(len(content) + 1) :]
    for _ in range(min(len(content), choice.randrange(60))):
        content[choice.randrange(len(content))] = choice.randrange(256)
    path.write_bytes(content)


def mutant(document: dict[str, Any], seed: int) -> bytes:
    """A trace of which some values are others, events are missing or doubled, or bytes are changed."""
    choice, document = random.Random(seed), json.loads(json.dumps(document))
    events = document["traceEvents"]
    for _ in range(choice.randrange(1, len(events) // 2)):
        event = choice.choice(events)
        where = event.get("args") if choice.random() < 0.3 else event
        if where and isinstance(where, dict):
            where[choice.choice(list(where))] = choice.choice(WEIRD)
    for name in ("baseTimeNanoseconds", "distributedInfo", "deviceProperties", "trace_id", "schemaVersion"):
        if choice.random() < 0.2:
            document[name] = choice.choice(WEIRD)
    choice.shuffle(events)
    content = bytearray(json.dumps(document).encode())
    if choice.random() < 0.2:
        content[choice.randrange(len(content))] = choice.randrange(256)
    return bytes(content[: choice.randrange(len(content))] if choice.random() < 0.1 else content)
