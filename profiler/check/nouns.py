"""Numbers of things, in words."""

from __future__ import annotations


def some(number: int, noun: str, plural: str = "") -> str:
    """'1 round', '3 rounds'."""
    return f"{number:,} {noun if number == 1 else plural or f'{noun}s'}"
