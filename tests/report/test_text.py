"""Sentences for single values."""

from __future__ import annotations

import pytest

from profiler.report.text import commit_text


@pytest.mark.parametrize(
    ("commit", "text"),
    [
        (None, "not in a git checkout"),
        ("3f2a9c1", "3f2a9c1"),
        ("3f2a9c1+changes", "3f2a9c1 with uncommitted changes"),
        ("3f2a9c1+unknown", "3f2a9c1, perhaps with uncommitted changes"),
    ],
)
def test_the_commit_of_a_manifest(commit: str | None, text: str) -> None:
    assert commit_text(commit) == text
