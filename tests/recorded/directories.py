"""Run directories written by hand, as the recorder and a recorded process write them."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from profiler.run import store, tables
from profiler.run.model import RunInfo, Site

Rows = Iterable[tuple[Any, ...]]


def info(**fields: Any) -> RunInfo:
    """A manifest; it has the state `running` unless another one is given."""
    given = {"schema": tables.SCHEMA, "run_id": "r", "started_at": "2026-01-01T00:00:00+00:00", "argv": ("train",)}
    return RunInfo(**{**given, **fields})


def write_manifest(run: Path, **fields: Any) -> Path:
    """Write the manifest of a complete run into `run`, which is made if necessary."""
    run.mkdir(parents=True, exist_ok=True)
    store.write_manifest(run, info(**{"state": "complete", **fields}))
    return run


def write_source(
    run: Path,
    pid: int = 7,
    *,
    rank: int = 0,
    facts: Mapping[str, Any] | None = None,
    names: Iterable[str] | Mapping[int, str] = (),
    sites: Mapping[int, Site] | None = None,
    **rows: Rows,
) -> Path:
    """Write the folder of one process.

    :param rows: by table, tuples of all fields; a table without rows has no file.
    """
    folder = run / tables.source_name(pid)
    folder.mkdir(parents=True)
    meta = {"schema": 1, "pid": pid, "rank": rank, "facts": dict(facts or {})}
    texts = names if isinstance(names, Mapping) else dict(enumerate(names))
    lines: dict[str, list[dict[str, Any]]] = {
        tables.SOURCE_META: [meta],
        tables.NAMES: [{"id": number, "text": text} for number, text in texts.items()],
        tables.SITES: [{"id": number, **dataclasses.asdict(site)} for number, site in (sites or {}).items()],
    }
    for name, objects in lines.items():
        (folder / name).write_text("".join(json.dumps(line) + "\n" for line in objects))
    for table, records in rows.items():
        if data := b"".join(tables.packer(table).pack(*record) for record in records):
            (folder / f"{table}.bin").write_bytes(data)
    return folder


def steps(count: int, length: int = 10, *, tid: int = 7, tokens: int = 3, warmup: int = 0) -> Rows:
    """Rows of the table `steps`, of `length` ns each, of which the first `warmup` are not measured."""
    return [(n, n * length, (n + 1) * length, tokens, 1, 1, 0, tid, n < warmup) for n in range(count)]
