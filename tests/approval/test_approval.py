"""Recorded runs and gates give the reports that were approved: the same numbers, the same structure, the same words.

Where a change of them is meant, `python -m tests.approval.approve` writes them anew and says what has changed.
"""

from __future__ import annotations

import difflib

import pytest

from tests.approval.approve import differences, read
from tests.approval.cases import cases, numbers, words

CASES = cases()
OF_REPORT = [name for name in CASES if name.startswith(("made-up-", "variant-", "wording"))]
"""Cases that tests/report runs."""


@pytest.mark.parametrize("name", [name for name in CASES if name not in OF_REPORT])
def test_output_is_as_approved(name: str) -> None:
    check(name)


def check(name: str) -> None:
    """Compare the output of a case with the approved one."""
    approved, text = read(name)
    output = CASES[name]()
    changed = list(differences(approved, numbers(output.document)))
    assert not changed, f"{name}: numbers or structure changed:\n" + "\n".join(changed[:40])
    current = words(output)
    if current != text:
        diff = difflib.unified_diff(text.splitlines(), current.splitlines(), "approved", "now", n=0, lineterm="")
        pytest.fail(f"{name}: only words changed:\n" + "\n".join(list(diff)[:60]), pytrace=False)
