"""Small traces in the shape of torch's profiler, as Python values; written to a file as it would."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

PID, TID = 70, 71


def event(cat: str, name: str, ts: float | str, dur: float | str, **args: Any) -> dict[str, Any]:
    """A complete event of the host; `tid` and `pid` among `args` are the event's own."""
    place = {"pid": args.pop("pid", PID), "tid": args.pop("tid", TID)}
    return {"ph": "X", "cat": cat, "name": name, "ts": ts, "dur": dur, **place, "args": args}


def on_device(cat: str, name: str, ts: float, dur: float, *, device: int = 0, stream: int = 7, **args: Any) -> Any:
    return event(cat, name, ts, dur, pid=device, tid=stream, device=device, stream=stream, **args)


def written(path: Path, events: list[Any], **meta: Any) -> Path:
    """A trace at `path`; gzipped where its name says so."""
    data = json.dumps({"schemaVersion": 1, **meta, "traceEvents": events}).encode()
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path
