"""Counters in people's words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

NAMES: Final[Mapping[str, tuple[str, str]]] = {
    "syncs": ("sync", "syncs"),
    "would_sync": ("call that would sync on a GPU", "calls that would sync on a GPU"),
    "would_sync_in_loader": ("such call in a loader", "such calls in loaders"),
    "debug_syncs": ("sync that torch warned of", "syncs that torch warned of"),
    "h2d": ("H2D copy", "H2D copies"),
    "d2h": ("D2H copy", "D2H copies"),
    "d2d": ("D2D copy", "D2D copies"),
    "h2d_bytes": ("H2D copies", "bytes of H2D copies"),
    "d2h_bytes": ("D2H copies", "bytes of D2H copies"),
    "d2d_bytes": ("D2D copies", "bytes of D2D copies"),
    "allocations": ("allocation", "allocations"),
    "frees": ("free", "frees"),
    "launches": ("launch", "launches"),
    "memsets": ("memset", "memsets"),
    "crossings": ("host-native crossing", "host-native crossings"),
    "tokenized": ("tokenized text", "tokenized texts"),
    "tokenized_samples": ("tokenized sample", "tokenized samples"),
    "recompilations": ("recompilation", "recompilations"),
    "compile_ns": ("compilation", "time of compilation"),
}
"""Of one and of many; of bytes and times, what they are bytes and time of, and the whole."""
