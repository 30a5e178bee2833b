"""Helps a training loop on Ray Train to report its throughput.

    reporter = Reporter(model)
    for batch in loader:
        loss = train(batch)
        reporter.step(tokens=batch.numel())
        reporter.report({"loss": loss})      # instead of ray.train.report

A loop that Hugging Face's Trainer or Lightning drives on Ray takes the callback of that library.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import ray.train

from profiler.frameworks.meter import Meter, Phase, count_flops, known_peak


class Reporter:
    """Counts the steps of a worker, and adds throughput and phases to what it reports.

    :param model: None: there is no MFU, unless `flops_per_token` is given.
    :param flops_per_token: operations of the model per token of training; None: six for each parameter outside of
        embeddings.
    :param peak_flops: operations per second of one device; None: those of a known GPU.
    """

    def __init__(
        self, model: Any = None, *, flops_per_token: float | None = None, peak_flops: float | None = None
    ) -> None:
        parameter = next(iter(model.parameters()), None) if model is not None else None
        half = parameter is not None and parameter.element_size() == 2
        if flops_per_token is None and model is not None:
            flops_per_token = count_flops(model)
        devices = ray.train.get_context().get_world_size()
        self._meter = Meter(flops_per_token, peak_flops or known_peak(half=half), devices)
        self._steps = self._tokens = self._samples = 0

    def step(self, *, tokens: int = 0, samples: int = 0) -> None:
        """Count a step of the optimizer, with the tokens or samples that this worker has trained on."""
        self._steps += 1
        self._tokens += tokens
        self._samples += samples

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Name what runs inside: `evaluation` or `checkpoint`, which are no part of the throughput, or another name."""
        self._meter.passed(Phase.TRAINING)
        try:
            yield
        finally:
            self._meter.passed(name)

    def report(self, metrics: Mapping[str, Any], checkpoint: Any = None, **options: Any) -> None:
        """Report metrics with the throughput since the last report; the arguments are those of `ray.train.report`.

        Every worker must call this, as it must call `ray.train.report`; Ray keeps the metrics of rank 0.
        """
        self._meter.passed(Phase.TRAINING)
        devices = self._meter.devices
        values = self._meter.values(self._steps, tokens=self._tokens * devices, samples=self._samples * devices)
        self._steps = self._tokens = self._samples = 0
        ray.train.report({**metrics, **values}, checkpoint=checkpoint, **options)
        self._meter.passed(Phase.LOG if checkpoint is None else Phase.CHECKPOINT)
