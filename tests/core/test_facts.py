"""Facts as rows for people: nested names, sizes, and nothing that only Python could read."""

from __future__ import annotations

from profiler.core.facts import flat


def test_no_python_values_are_shown() -> None:
    facts = {
        "memory_bytes": 8_000_000_000,
        "governor": None,
        "environment": {},
        "hooks": {"item": ""},
        "versions_of": "the recorder's Python",
        "limits": {"open_files": 1024},
        "fixes": [],
    }
    assert flat(facts) == {"memory": "8.00 GB", "limits open files": "1024", "fixes": "none"}
