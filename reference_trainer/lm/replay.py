"""Replays the launches of a chunk as a graph: the fix cuda-graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from profiler import marks
from reference_trainer.devices.protocol import Device


class Replay:
    """Runs the launches of a chunk: by themselves in the first chunk of each slot, from then on as one graph.

    The first launch compiles kernels and allocates scratch memory, which a capture forbids. All chunks of a source have
    one length, and thus one graph per slot; one of another length (the last held-out one, for example) is launched.

    :param tokens: length of the chunks that are replayed; 0: none is.
    """

    def __init__(self, device: Device, tokens: int) -> None:
        self._device = device
        self._tokens = tokens
        self._graphs: dict[int, Any] = {}
        """By slot; None: it was launched once."""

    def run(self, slot: int, tokens: int, launch: Callable[[], object]) -> None:
        """Run `launch`, which launches the same kernels on the same memory each time that it is called for `slot`."""
        if tokens != self._tokens:
            launch()
        elif slot not in self._graphs:
            self._graphs[slot] = None
            launch()
        else:
            if self._graphs[slot] is None:
                self._graphs[slot] = self._device.capture(launch)
            with marks.region("graph"):
                self._device.replay(self._graphs[slot])
