"""A device that keeps what chunks leave on it, whichever program runs them: it knows their last kernels.

Nothing of this costs a measured step anything: while no chunk is observed, each method is the device's own.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from reference_trainer.devices.protocol import Buffer, Device
from reference_trainer.errors import TrainerError
from reference_trainer.kernels import Kernel, decode_token, predict, recurrent_step, rewards, scan

_ARGUMENTS: Final[dict[Kernel, dict[str, int]]] = {
    recurrent_step.KERNEL: {"state": 5},
    scan.SCAN: {"state": 3},
    scan.KEEPING: {"state": 4},
    predict.PREDICT: {"predictions": 0, "logits": 1},
    predict.SCORE: {"predictions": 0, "logits": 2},
    rewards.MODULATE: {"results": 0, "modulator": 2, "tokens": 3},
    rewards.LEARNED: {"results": 0, "losses": 1, "predictions": 2, "tokens": 5},
}
"""Kernel -> names of some of its arguments. One with results is the last of a chunk."""
_ROWS: Final = 256
"""Tokens for which memory is taken at a time, where they come one by one."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a chunk has left on the device."""

    predictions: np.ndarray
    """(T,)"""
    state: np.ndarray
    """The recurrent state after the chunk."""
    results: np.ndarray
    """Loss, accuracy and more, as the device computed them."""
    logits: np.ndarray | None = None
    """(T, V) without the bias; None: the model learns."""
    losses: np.ndarray | None = None
    """(T,) Cross-entropy of each prediction, where the model learns."""


class ObservedDevice:
    """A `Device` that keeps the outcomes of chunks while it observes."""

    def __init__(self, device: Device, vocabulary: int) -> None:
        self._device = device
        self._vocabulary = vocabulary
        self._seen: dict[str, Any] = {}
        """Arguments by name, as the last kernel had them that has such an argument."""
        self._rows: dict[str, list[np.ndarray]] = {}
        """Predictions and logits of a chunk that goes token by token, in blocks of _ROWS."""
        self._done = 0
        """Tokens of that chunk so far."""
        self._is_capturing = False
        self._kept: deque[tuple[Any, dict[str, list[np.ndarray]]]] = deque()

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._device, name)
        if callable(value):
            setattr(self, name, value)  # from now on found without this detour
        return value

    @contextmanager
    def observing(self) -> Iterator[None]:
        """Keep the outcomes of the chunks that are launched meanwhile."""
        observed: dict[str, Callable[..., Any]] = {
            "launch": self._launch,
            "capture": self._capture,
            "replay": self._replay,
        }
        vars(self).update(observed)
        try:
            yield
        finally:
            for name in observed:
                delattr(self, name)

    def outcome(self) -> Outcome:
        """Wait for the oldest chunk whose outcome was not returned yet.

        :raises TrainerError: there is none.
        """
        if not self._kept:
            raise TrainerError(
                "the results of a chunk were not seen: the program has to launch the kernel that computes its loss, "
                "and to look device.launch up for each chunk"
            )
        ticket, blocks = self._kept.popleft()
        self._device.wait(ticket)
        return Outcome(**{name: np.concatenate(arrays) for name, arrays in blocks.items()})

    def reset(self, modulator: float = 0.0) -> None:
        """Set the recurrent state to zero, and the modulator to this number."""
        for name, value in (("state", 0.0), ("modulator", modulator)):
            buffer = self._seen[name]
            self._device.upload_into(buffer, np.full(buffer.shape, value, self._device.real))
        self._device.synchronize()

    def modulator(self) -> float:
        """Wait for the device, and read the modulator."""
        return float(self._device.download(self._seen["modulator"])[0])

    # ------------------------------------------------------------ what programs call

    def _launch(self, kernel: Kernel, *arguments: Any) -> None:
        self._device.launch(kernel, *arguments)
        names = _ARGUMENTS.get(kernel, {})
        self._seen.update((name, arguments[position]) for name, position in names.items())
        if self._is_capturing:
            return
        if kernel is decode_token.KERNEL:
            self._keep_token(*arguments)
        elif "results" in names:
            self._end()

    def _capture(self, function: Callable[[], object]) -> Any:
        self._is_capturing = True
        try:
            return self._device.capture(function)
        finally:
            self._is_capturing = False

    def _replay(self, graph: Any) -> None:
        self._device.replay(graph)
        self._seen["tokens"] = self._seen["predictions"].shape[0]  # only chunks of full length are replayed
        self._end()

    def _pinned(self, name: str, *shape: int) -> np.ndarray:
        return self._device.pinned(shape, "int32" if name == "predictions" else None)

    def _keep_token(self, prediction: Buffer, *rest: Any) -> None:
        """Fetch the prediction and the logits, which the next token overwrites."""
        row, fetched = rest[-2], {"predictions": prediction, "logits": rest[3]}
        place = self._done % _ROWS
        self._done += 1
        for name, buffer in fetched.items():
            blocks = self._rows.setdefault(name, [])
            if place == 0:
                blocks.append(self._pinned(name, _ROWS, *((self._vocabulary,) if name == "logits" else ())))
            source = buffer.rows(row, row + 1) if name == "predictions" else buffer
            self._device.fetch_into(blocks[-1][place : place + 1], source)

    def _end(self) -> None:
        """The last kernel of a chunk is in the queue: fetch what the chunk leaves."""
        blocks, tokens, ticket = self._rows, self._seen["tokens"], None
        for arrays in blocks.values():
            arrays[-1] = arrays[-1][: tokens - _ROWS * (len(arrays) - 1)]
        self._rows, self._done = {}, 0
        for name, buffer in self._seen.items():
            if name in blocks or name in ("modulator", "tokens"):
                continue
            shape = buffer.shape if name in ("state", "results") else (tokens, *buffer.shape[1:])
            blocks[name] = [self._pinned(name, *shape)]
            ticket = self._device.fetch_into(blocks[name][0], buffer)
        self._kept.append((ticket, blocks))
