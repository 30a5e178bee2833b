"""Made-up results, usual and unusual, and the sentences of all verdicts give the output in tests/approval/approved."""

from __future__ import annotations

import pytest

from tests.approval.test_approval import OF_REPORT, check


@pytest.mark.parametrize("name", OF_REPORT)
def test_output_is_as_approved(name: str) -> None:
    check(name)
