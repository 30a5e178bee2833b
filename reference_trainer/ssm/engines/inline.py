"""The engine that does one task after another in this process, as found."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from reference_trainer.errors import TrainerError
from reference_trainer.performance import PerformanceConfig
from reference_trainer.ssm.engine import Engine, EnginePlugin, Failure, Prepare, R, T, Work, accepted, attempt
from reference_trainer.ssm.placement import Placement, WorkerSlot


class Inline(Engine):
    """An engine whose only worker is this process."""

    def __init__(self) -> None:
        self._slot = WorkerSlot("cpu", "cpu")
        self.device_names = (self._slot.name,)

    def find_devices(self, device: str, config: PerformanceConfig, workers: int | None) -> Placement:
        if workers is not None and workers > 1:
            raise TrainerError(
                f"--workers {workers} means nothing with engine inline, this process is all there is: "
                "choose --engine pool, or leave --workers out"
            )
        return super().find_devices(device, config, workers)

    def start(self, placement: Placement, prepare: Prepare) -> None:
        self._slot = placement.first()[0]
        self.device_names = (self._slot.name,)
        accepted(attempt(prepare, self._slot))

    def run(self, work: Work[T, R], tasks: Iterable[T]) -> Iterator[tuple[T, R | Failure]]:
        for task in tasks:
            yield task, attempt(work, task, self._slot, device=self._slot.name)

    def close(self) -> None:
        """Do nothing: there is no other process."""


PLUGIN = EnginePlugin("inline", lambda _: Inline())
