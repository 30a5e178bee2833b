"""The examples of docs/frameworks.md, the clock of these tests, and what no callback may do."""

from __future__ import annotations

import re
from typing import Any

from tests.fakes.programs import ROOT

MS = 1_000_000
VALUE = "profiler/"
BATCH, STEPS = 4, 6
DATA_MS, TRAIN_MS, EVALUATE_MS, SAVE_MS, LOG_MS = 1, 10, 1_000, 5_000, 2
"""What takes how long on the clock: a batch of data, a pass, an evaluation, a checkpoint, a log."""


class Clock:
    """Time that passes only where a test says so."""

    def __init__(self) -> None:
        self.ns = 0

    def __call__(self) -> int:
        return self.ns

    def pass_ms(self, ms: float) -> None:
        self.ns += round(ms * MS)


CLOCK = Clock()


def run_example(heading: str, **names: Any) -> dict[str, Any]:
    """Run the example below a heading of the page, with these names; return all names afterwards."""
    page = (ROOT / "docs/frameworks.md").read_text(encoding="utf-8")
    found = re.search(rf"^## {heading}\n.*?^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    assert found is not None
    exec(found[1], names)
    return names


def refuse(*_: Any) -> None:
    """Stand in for `socket.connect`."""
    raise AssertionError("a callback opened a connection")
