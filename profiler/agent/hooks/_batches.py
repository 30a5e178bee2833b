"""What a batch of a loader holds: how many items, and how much of it is padding."""

from __future__ import annotations

from collections import UserDict
from collections.abc import Iterator, Sequence
from typing import Any, Final

from profiler.agent.recorder import Recorder
from profiler.run.tables import BATCH_ITEMS

_MAX_TENSORS: Final = 8
"""Tensors of a batch that are looked at."""
_MIN_LENGTH, _MIN_ROWS = 8, 2
"""Least length and number of the rows in which padding is looked for."""
_MAX_ROWS, _MAX_LENGTH = 32, 4096
"""Rows of a batch that are looked at, and their greatest length: these take some 4 ms at most."""
_MIN_RUN: Final = 2
"""Equal last elements of a row from which they may be padding: two rows may end alike by chance."""
_INTEGERS: Final = ("torch.int64", "torch.int32")
_SAMPLED: Final = (3, 6, 12, 24, 48, 96)
"""The batches of a loader whose padding is looked for, by their number."""
_MAX_LOADERS: Final = 16
"""Loaders in whose batches padding is looked for: a program that makes more makes them again and again."""


class Batches:
    """Looks at the batches that the training process gets."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}
        self._padding: dict[str, dict[str, Any]] = {}

    def look_at(self, batch: Any, loader: str, recorder: Recorder) -> None:
        """Count the items of a batch; look for padding in a few. About 3 µs."""
        try:
            if items := count_items(batch):
                recorder.count(BATCH_ITEMS, items)
            number = self._counts[loader] = self._counts.get(loader, 0) + 1
            if number in _SAMPLED and len(self._counts) <= _MAX_LOADERS:
                self._look_for_padding(batch, loader, recorder)
        except Exception as error:  # noqa: BLE001 - the edge to the program, which goes on; the run's status reports it
            recorder.hook_errors["loader"] = f"{type(error).__name__}: {error}"

    def _look_for_padding(self, batch: Any, loader: str, recorder: Recorder) -> None:
        nothing = {"batches": 0, "padded_batches": 0, "elements": 0, "padding": 0, "ids": []}
        fact = self._padding.setdefault(loader, nothing)
        fact["batches"] += 1
        if (seen := padding(batch)) is not None:
            elements, padded, padding_id = seen
            fact["padded_batches"] += 1
            fact["elements"] += elements
            fact["padding"] += padded
            fact["ids"] = sorted({*fact["ids"], padding_id})
            recorder.add_hook_facts(padding=self._padding)


def tensors(batch: Any) -> Iterator[Any]:
    """The tensors of a batch that are no deeper than in a list, tuple or dictionary."""
    values = batch.values() if isinstance(batch, (dict, UserDict)) else batch
    if not isinstance(batch, (list, tuple, dict, UserDict)):
        values = (batch,)
    for value, _ in zip(values, range(_MAX_TENSORS), strict=False):
        if type(value).__module__ == "torch" and type(value).__name__ == "Tensor":
            yield value


def count_items(batch: Any) -> int:
    """The first dimension that all tensors of a batch share; 0 where they share none. About 2 µs."""
    sizes = {int(tensor.shape[0]) for tensor in tensors(batch) if tensor.ndim}
    return sizes.pop() if len(sizes) == 1 else 0


def padding(batch: Any) -> tuple[int, int, int] | None:
    """The elements of the first tensor of token ids, how many of them are padding, and the id of that. None if no
    tensor of the batch looks like padded token ids.

    Padding is one id that ends rows at least twice, and stands nowhere else in any row; rows are of different length
    without it. No id is negative: labels often have -100 where the loss ignores them.
    """
    for tensor in tensors(batch):
        if tensor.ndim != 2 or str(tensor.dtype) not in _INTEGERS or tensor.device.type != "cpu":
            continue
        rows, length = tensor.shape
        if rows >= _MIN_ROWS and _MIN_LENGTH <= length <= _MAX_LENGTH:
            found = padding_of_rows(tensor[:_MAX_ROWS].tolist())
            if found is not None:
                return found
    return None


def padding_of_rows(rows: Sequence[Sequence[int]]) -> tuple[int, int, int] | None:
    """The elements of these rows, how many of them are padding, and its id; see `padding`."""
    ids = {row[-1] for row in rows if row[-1] == row[-_MIN_RUN]}
    if len(ids) != 1:
        return None
    if any(min(row) < 0 for row in rows):
        return None
    (last,) = ids
    padded = []
    for row in rows:
        filled = len(row)
        while filled and row[filled - 1] == last:
            filled -= 1
        if last in row[:filled]:
            return None
        padded.append(len(row) - filled)
    if len(set(padded)) < 2:
        return None
    return sum(map(len, rows)), sum(padded), last
