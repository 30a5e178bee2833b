"""The same chunk in plain PyTorch: token by token, as a first version is often written, and batched.

Neither is a fix of this trainer. A ladder measures both beside it: they show what batching gives without the trainer's
kernels and queue.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

import numpy as np

from profiler import marks
from reference_trainer.devices import kind_of
from reference_trainer.errors import TrainerError
from reference_trainer.lm.chunks import Chunks
from reference_trainer.lm.job import prepare
from reference_trainer.lm.model import ModelConfig, Weights, initial_weights
from reference_trainer.lm.result import Summary
from reference_trainer.lm.settings import PLAIN, Settings
from reference_trainer.program import flag, obey

THREADS: Final = 1
"""Threads of torch on the CPU: a product of preset tiny is too short to be shared."""


class PlainModel:
    """The model as torch operators; state and modulator are carried from chunk to chunk."""

    def __init__(self, config: ModelConfig, weights: Weights, device: str = "cpu") -> None:
        import torch

        self._torch: Any = torch
        self._weights = {name: torch.from_numpy(getattr(weights, name)).to(device) for name in Weights.__slots__}
        self.states = list(torch.zeros(config.layers, config.width, device=device))
        self.modulator = 0.0

    def chunk(self, ids: np.ndarray, variant: str) -> np.ndarray:
        """Predict each next token of a chunk, and move the modulator by the share that is right."""
        with self._torch.inference_mode():
            predictions = self._token_by_token(ids) if variant == "torch-token" else self._batched(ids)
        self.modulator = 0.9 * self.modulator + 0.1 * float(np.mean(predictions == ids[1:]))
        return predictions

    def _token_by_token(self, ids: np.ndarray) -> np.ndarray:
        weights, predictions = self._weights, []
        for current in ids[:-1].tolist():
            x = weights["embedding"][current]
            for layer, state in enumerate(self.states):
                keep, added = self._gates(x, layer)
                self.states[layer] = keep * state + added
                x = x + self.states[layer]
            predictions.append(self._best(x).item())
        return np.array(predictions)

    def _batched(self, ids: np.ndarray) -> np.ndarray:
        x = self._weights["embedding"][ids[:-1].tolist()]
        for layer in range(len(self.states)):
            states = [self.states[layer]]
            for keep, added in zip(*self._gates(x, layer), strict=True):  # only the states depend on earlier tokens
                states.append(self._torch.addcmul(added, keep, states[-1]))
            self.states[layer] = states[-1]
            x = x + self._torch.stack(states[1:])
        return np.asarray(self._best(x).cpu())

    def _gates(self, x: Any, layer: int) -> tuple[Any, Any]:
        gate, value = (x @ self._weights["layer"][layer] + self._weights["bias"][layer]).chunk(2, dim=-1)
        keep = self._torch.sigmoid(gate + self.modulator)
        return keep, (1 - keep) * value

    def _best(self, x: Any) -> Any:
        weights = self._weights
        return (x @ weights["readout"] @ weights["decoder"] + weights["decoder_bias"]).argmax(dim=-1)


def train(settings: Settings, progress: Callable[[str], None]) -> Summary:
    """Run the variant over the text: a warm-up, then the measured steps.

    :raises TrainerError: bad input, or an option that these variants do not have.
    """
    given = [name for name in ("metrics", "empty_kernels") if getattr(settings, name)]
    given += ["dtype"] * (settings.dtype != "fp32") + [*settings.performance.changed]
    if given:
        raise TrainerError(f"{flag(given[0])} means nothing with --variant {settings.variant}: leave it out")
    import torch

    torch.set_num_threads(THREADS)
    job, tokens = prepare(replace(settings, variant="as-found")), settings.tokens_per_chunk
    device = "cuda" if kind_of(settings.device)[0] == "cuda" else "cpu"
    known = {"preset": settings.preset, "corpus": job.text.corpus.name, "tokens_per_chunk": tokens}
    marks.describe(
        variant=settings.variant, device=device, step="chunk", work="forward", torch_threads=THREADS, **known
    )
    progress(
        f"plain PyTorch, {PLAIN[settings.variant]}, on {device}, preset {settings.preset}, corpus {known['corpus']}"
    )
    model = PlainModel(job.config, initial_weights(job.config, settings.seed), device)
    source = Chunks(job.text, batch=settings.variant == "torch-batched", verbose=settings.verbose)

    def step(index: int, *, warmup: bool) -> float:
        obey()
        ids = source.ids(index)
        accuracy = float(np.mean(model.chunk(ids, settings.variant) == ids[1:]))
        marks.gauge("loss", 1 - accuracy)
        marks.gauge("accuracy", accuracy)
        marks.step(tokens=tokens, warmup=warmup)
        return accuracy

    marks.open_step()
    began, before, found = time.perf_counter(), 0, list[float]()
    while not before or time.perf_counter() - began < settings.warmup_seconds:
        step(before, warmup=True)
        before += 1
    began, seconds = time.perf_counter(), 0.0
    while len(found) < (settings.max_chunks or math.inf) and (settings.max_chunks or seconds < settings.seconds):
        found.append(step(before + len(found), warmup=False))
        seconds = time.perf_counter() - began
    accuracy = sum(found) / len(found)
    return Summary(len(found), tokens * len(found), seconds, tokens * len(found) / seconds, 1 - accuracy, accuracy)
