"""metrics_history.json: a row for every reading of the metrics, for a learning curve of one's own."""

from __future__ import annotations

import json
import math
from array import array
from pathlib import Path
from typing import Final

import numpy as np

from reference_trainer.errors import TrainerError
from reference_trainer.program import check_output, write_output

_ALWAYS: Final = ("step", "loss", "accuracy", "lr", "tokens_per_s")
COLUMNS: Final = (*_ALWAYS, "heldout_loss", "heldout_accuracy")
"""Columns of a row. Held-out values are in the rows of steps before which the model was evaluated: they are of the
model that the step began with, as the step's own loss is."""


class History:
    """Rows of what steps gave, kept in memory until they are written: 56 bytes each."""

    def __init__(self, path: Path | None) -> None:
        """:raises TrainerError: it could not be written."""
        if path is not None:  # better known before the training than after
            check_output("--metrics", path)
        self._path = path
        self._values = array("d")

    def __len__(self) -> int:
        return len(self._values) // len(COLUMNS)

    def add(self, step: int, **values: float | None) -> None:
        """One row: values of COLUMNS, None where there is none."""
        self._values.append(step)
        for name in COLUMNS[1:]:
            value = values.get(name)
            self._values.append(math.nan if value is None else value)

    def head(self, rows: int) -> np.ndarray:
        """The first rows (rows, columns) float64, NaN where there is no value; a copy."""
        return np.array(self._values[: rows * len(COLUMNS)], np.float64).reshape(rows, len(COLUMNS))

    def restore(self, rows: np.ndarray) -> None:
        """Begin with `rows`, as `head` gave them."""
        self._values = array("d", rows.tobytes())

    def rows(self) -> list[dict[str, float | None]]:
        """The rows as they are in the file."""
        rows = []
        for values in self.head(len(self)).tolist():
            row = {name: value if math.isfinite(value) else None for name, value in zip(COLUMNS, values, strict=True)}
            rows.append({name: value for name, value in row.items() if name in _ALWAYS or value is not None})
            rows[-1]["step"] = int(values[0])
        return rows

    def write(self) -> None:
        """Replace the file completely or not at all; do nothing without a path.

        :raises TrainerError: it cannot be written.
        """
        if self._path is not None:
            write_output("--metrics", self._path, json.dumps(self.rows(), indent=0) + "\n")

    def rescue(self) -> str:
        """Write what there is of a run that ends early; in words where it is. Empty: there is nothing to keep.

        An earlier file is not replaced by one without rows.
        """
        if self._path is None or not len(self):
            return ""
        try:
            self.write()
        except TrainerError as error:
            return f"no metrics, {error}"
        return f"metrics in {self._path}"
