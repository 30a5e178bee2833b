"""This process, one task after another: as found."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from reference_trainer.errors import TrainerError
from reference_trainer.performance import PerformanceConfig
from reference_trainer.ssm.engine import EnginePlugin, Failure, Prepare, R, T, Work, attempt, prepared
from reference_trainer.ssm.placement import Placement, WorkerSlot, find_free_devices


class Inline:
    """No workers but the one that asks."""

    workers = 1
    redone = 0
    """A worker that dies is the sweep."""

    def __init__(self) -> None:
        self._place = WorkerSlot("cpu", "cpu")

    @property
    def device_names(self) -> tuple[str, ...]:
        """The one device."""
        return (self._place.name,)

    def find_devices(self, device: str, config: PerformanceConfig, workers: int | None) -> Placement:
        """Devices of this machine.

        :raises TrainerError: none is free, or workers are asked for.
        """
        if workers is not None and workers > 1:
            raise TrainerError(
                f"--workers {workers} means nothing with engine inline, this process is all there is: "
                "choose --engine pool, or leave --workers out"
            )
        return find_free_devices(device, config, workers)

    def start(self, placement: Placement, prepare: Prepare) -> None:
        """Take the first device.

        :raises TrainerError: the first work on it failed.
        """
        self._place = placement.first()[0]
        prepared(prepare, self._place)

    def run(self, work: Work[T, R], tasks: Iterable[T]) -> Iterator[tuple[T, R | Failure]]:
        """In their order."""
        for task in tasks:
            yield task, attempt(work, task, self._place)

    def close(self) -> None:
        """Nothing is left."""


def _open(address: str | None) -> Inline:
    if address is not None:
        raise TrainerError("--address is of engine ray: leave it out")
    return Inline()


PLUGIN = EnginePlugin("inline", "this process, one task after another", _open)
