"""How busy GPUs are while a sweep runs, as their driver says it: sampled beside it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Final, Self

_EVERY_S: Final = 0.2
"""The driver's own value is of the last sixth of a second to one second."""


class Utilisation:
    """A context that samples; the means are read after it."""

    def __init__(self, names: Sequence[str], read: Callable[[str], float] | None = None) -> None:
        """
        :param names: of devices; a CPU is not sampled.
        :param read: the share that one is busy now; None: as NVML says it.
        """
        self._read = read or _nvml
        self._sums = {name: 0.0 for name in names if name.startswith("cuda")}
        self._samples = 0
        self.why = ""
        """Why there is none."""
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)

    def __enter__(self) -> Self:
        if self._sums:
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join()

    def mean(self, name: str) -> float | None:
        """The share of time in which a device was busy; None: it was not sampled."""
        return self._sums[name] / self._samples if self._samples and name in self._sums else None

    def _sample(self) -> None:
        while True:
            try:
                now = {name: self._read(name) for name in self._sums}
            except Exception as error:  # noqa: BLE001 - a thread's edge; NVML and torch have errors of their own
                self.why = " ".join(str(error).split()) or type(error).__name__
                return
            for name, value in now.items():
                self._sums[name] += value
            self._samples += 1
            if self._ended.wait(_EVERY_S):
                return


def _nvml(name: str) -> float:
    import torch

    return torch.cuda.utilization(name) / 100
