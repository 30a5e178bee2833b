"""The four stages of a chunk: embed, recurrence, decode, loss; each token by token or for the whole chunk at once.

Within a chunk nothing depends on a prediction, so every stage can be batched by itself. Stages that go token by token
share one loop over the tokens, as found; a stage that is batched runs once.
"""

from __future__ import annotations

from typing import Protocol


class Stage(Protocol):
    """One stage, done the way that the plan says."""

    batched: bool

    def begin(self) -> None:
        """Before the first token of a chunk."""

    def token(self, t: int) -> None:
        """Do token `t` (where not batched)."""

    def chunk(self) -> None:
        """Do all tokens (where batched)."""
