"""Any plan's forward pass against the plain PyTorch model, on any device."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from reference_trainer.devices.protocol import Device
from reference_trainer.lm.model import ModelConfig, Weights, initial_weights
from reference_trainer.lm.pipeline import Pipeline
from reference_trainer.lm.plan import Plan
from tests.reference_trainer.lm.reference import Expected, ReferenceModel

GAP = {4: 1e-4, 8: 1e-9}
"""By bytes of a real. Two logits of order 1 closer than this may change places: in fp32 their rounding errors reach
some 1e-6 after tens of layers, tokens and sums of up to 256 products, and 1e-5 at width 4,096."""
CLOSE = {4: 1e-4, 8: 1e-9}
"""Largest error of the state, over the largest state."""
MOST_TIES = 0.02
"""Share of tokens that may be such: more would make the comparison empty."""


@dataclass(frozen=True)
class Case:
    """A model, and the lengths of the chunks that it is run on, one after the other."""

    config: ModelConfig
    lengths: tuple[int, ...]
    seed: int = 0

    def weights(self) -> Weights:
        """Random ones, biases too: initial ones are 0 in places, where a mistake could hide."""
        random = np.random.default_rng((self.seed, 1))
        initial = initial_weights(self.config, self.seed)
        noise = random.standard_normal(initial.bias.shape).astype(np.float32)
        decoder_bias = random.standard_normal(self.config.vocabulary).astype(np.float32)
        return replace(initial, bias=initial.bias + noise, decoder_bias=decoder_bias)

    def chunks(self) -> list[np.ndarray]:
        """Ids that the model can predict in part: half of them are what it predicted in a run before."""
        random = np.random.default_rng((self.seed, 2))
        chunks = [random.integers(0, self.config.vocabulary, length + 1).astype(np.int32) for length in self.lengths]
        model = ReferenceModel(self.config, self.weights())
        for chunk in chunks:
            guessed = model.chunk(chunk).predictions
            chunk[1::2] = guessed[::2]
        return chunks


def check(found: np.ndarray, expected: Expected, gap: float, where: str) -> int:
    """Predictions are the expected ones, but for near ties; how many of these went the other way."""
    different = np.flatnonzero(found != expected.predictions)
    for token in different:
        lead = expected.gaps[token]
        assert lead < gap, f"{where}, token {token}: {found[token]} instead of {expected.predictions[token]} by {lead}"
    return len(different)


def run(device: Device, case: Case, chosen: Plan) -> None:
    """Hold a plan's forward pass to the reference on all chunks: predictions, loss, accuracy and the carried state."""
    weights, size = case.weights(), device.real.itemsize
    model = ReferenceModel(case.config, weights)
    tested = Pipeline(device, case.config, weights, max(case.lengths), chosen)
    ties = others = 0
    loss = covered = 0.0
    expected_loss = 0.0
    for number, ids in enumerate(case.chunks()):
        expected = model.chunk(ids)
        tested.submit(ids)
        result = tested.collect()
        where = f"chunk {number}"
        assert result.tokens == len(ids) - 1
        others += check(predictions(tested), expected, GAP[size], where)
        ties += int(np.sum(expected.gaps < GAP[size]))
        expected_loss += expected.loss * result.tokens
        if result.loss is not None and result.accuracy is not None:
            assert abs(result.loss + result.accuracy - 1) < 1e-6
            loss, covered = loss + result.loss * result.covers, covered + result.covers
        check_state(tested, model, CLOSE[size], where)
    if (remainder := tested.flush()) is not None and remainder.loss is not None:
        loss, covered = loss + remainder.loss * remainder.covers, covered + remainder.covers
    assert covered == sum(case.lengths)
    assert abs(loss - expected_loss) <= 1e-5 * covered + others, f"loss {loss / covered}, not {expected_loss / covered}"
    total = sum(case.lengths)
    assert ties <= MOST_TIES * total, f"{ties} of {total} tokens are near ties"
    assert model.modulator > 0 or total < 10, "no reward at all: the modulator was not tested"


def predictions(tested: Pipeline) -> np.ndarray:
    """The predicted ids (T,) of the chunk that was submitted last."""
    work = tested._work
    if len(work.predicted):
        return np.array(work.predicted, np.int32)
    return tested._device.download(work.prediction)[: work.tokens]


def check_state(tested: Pipeline, model: ReferenceModel, tolerance: float, where: str) -> None:
    """The state and the modulator that the next chunk begins with."""
    device, work = tested._device, tested._work
    for name, buffer, expected in (("state", work.state, model.state), ("modulator", work.modulator, model.modulator)):
        error = np.abs(device.download(buffer) - expected).max() / max(1e-3, np.abs(expected).max())
        assert error <= tolerance, f"{where}: {name} is off by {error}"


TINY = ModelConfig(width=32, layers=2, vocabulary=256)
CASES = {
    "tiny": Case(TINY, (150, 150, 150)),
    "one token": Case(TINY, (1, 1, 1, 1, 1)),
    "odd lengths": Case(TINY, (33, 1, 17, 64, 31), seed=1),
    "odd widths": Case(ModelConfig(width=37, layers=3, vocabulary=101), (40, 23), seed=2),
    "one channel": Case(ModelConfig(width=1, layers=1, vocabulary=3), (20, 20), seed=3),
    "wide": Case(ModelConfig(width=256, layers=2, vocabulary=1000), (20, 9), seed=4),
}
