"""A made-up document of schema tokenization/2."""

from __future__ import annotations

from typing import Any


def way(name: str, ratio: float, *, threads: int = 1, tokenizes: bool = True, spread: float = 0.05) -> dict[str, Any]:
    """One way whose rate is `ratio` times 1,000 samples a second, give or take `spread` of it."""

    def figure(value: float) -> dict[str, float]:
        return {"median": value, "low": value * (1 - spread), "high": value * (1 + spread)}

    low, high = ratio * (1 - spread), ratio * (1 + spread)
    return {
        "name": name,
        "library": "files" if not tokenizes else "Library 1.0",
        "how": f"how {name} works",
        "threads": threads,
        "tokenizes": tokenizes,
        "measured": {
            "samples_per_s": figure(1_000 * ratio),
            "tokens_per_s": figure(400_000 * ratio),
            "ms_per_sample": figure(1 / ratio),
            "cpu_ms_per_sample": figure(threads / ratio),
            "ratio": {"value": ratio, "low": low, "high": high, "n": 15, "different": not low <= 1 <= high},
        },
    }


def document(*ways: dict[str, Any]) -> dict[str, Any]:
    """A document with one way of each kind by default; the first is the baseline."""
    every = ways or (
        way("sequential", 1.0, spread=0.0),
        way("batch", 1.01),
        way("parallel", 1.8, threads=2),
        way("pre-tokenized", 100.0, tokenizes=False),
    )
    return {
        "schema": "tokenization/2",
        "corpus": "made-up.txt",
        "corpus_sha256": "0" * 64,
        "corpus_chars": 100_000,
        "tokenizer": "0" * 16,
        "vocabulary": 4_096,
        "samples_per_chunk": 8,
        "sample_chars": 800,
        "cores": 2,
        "rounds": 15,
        "baseline": every[0]["name"],
        "ways": list(every),
    }
