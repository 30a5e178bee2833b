"""Runs a program that uses a device with recording on, and reads the tables that it left."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from profiler.run import tables

ROOT = Path(__file__).parents[3]
_KINDS = {"q": "<i8", "i": "<i4", "d": "<f8"}


@dataclass(frozen=True)
class Recording:
    """The records of one process."""

    calls: np.ndarray
    activities: np.ndarray
    counters: dict[str, float]
    """Sums over all steps."""
    names: list[str]
    sites: list[dict]


def record(script: str, directory: Path, level: str = "standard") -> Recording:
    """Run `script` (Python) as a program that is recorded at `level` into `directory`."""
    environment = {**os.environ, tables.ENV_RUN: str(directory), tables.ENV_LEVEL: level, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    (source,) = directory.glob("source-*")
    names = [line["text"] for line in _lines(source / tables.NAMES)]
    values = _table(source, "values")
    counters: dict[str, float] = {}
    for value in values[values["kind"] == tables.ValueKind.COUNTER]:
        name = names[value["name"]]
        counters[name] = counters.get(name, 0) + float(value["value"])
    sites = _lines(source / tables.SITES)
    steps, calls, activities = (_table(source, table) for table in ("steps", "calls", "activities"))
    first = steps["begin"].min()  # what came before the first step is counted in none
    return Recording(calls[calls["begin"] >= first], activities[activities["begin"] >= first], counters, names, sites)


def _table(source: Path, table: str) -> np.ndarray:
    path = source / f"{table}.bin"
    dtype = np.dtype([(name, _KINDS[code]) for name, code in tables.TABLES[table]])
    return np.fromfile(path, dtype) if path.exists() else np.zeros(0, dtype)


def _lines(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def of_kind(recording: Recording, kind: tables.CallKind) -> np.ndarray:
    return recording.calls[recording.calls["kind"] == kind]


def check_calls(recording: Recording) -> None:
    """Records agree with the counters, which are exact, and with themselves."""
    calls, counters = recording.calls, recording.counters
    kinds = {
        "launches": tables.CallKind.LAUNCH,
        "h2d": tables.CallKind.H2D,
        "d2h": tables.CallKind.D2H,
        "allocations": tables.CallKind.ALLOC,
    }
    result = {name: len(of_kind(recording, kind)) for name, kind in kinds.items()}
    assert result == {name: counters[name] for name in kinds}
    for name, kind in (("h2d_bytes", tables.CallKind.H2D), ("d2h_bytes", tables.CallKind.D2H)):
        assert of_kind(recording, kind)["bytes"].sum() == counters[name], name
    assert np.sum(calls["blocked"] > 0) == counters["syncs"], "each call that blocked is a sync"
    assert np.all(calls["blocked"] <= calls["end"] - calls["begin"]), "blocked longer than the call took"
    assert np.all(calls["begin"] <= calls["end"])
    assert np.all(calls["end"][:-1] <= calls["begin"][1:]), "calls of one thread overlap"
    assert np.all(calls["site"] >= 0)
    assert {recording.sites[site]["file"] for site in set(calls["site"].tolist())} == {"<string>"}
