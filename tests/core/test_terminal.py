"""Text for terminals: nothing in it commands them, and ASCII where there is no more."""

from __future__ import annotations

from profiler.core.terminal import ascii_text, plain


def test_plain_text_commands_nothing() -> None:
    assert plain("a\x1b[31mb\u202ec\nd\te\udc80") == "a\ufffd[31mb\ufffdc d e?"


def test_ascii_text() -> None:
    assert ascii_text("3.2× in 5 µs … – 数") == "3.2x in 5 us .. - ?"
