"""The chunk in plain PyTorch predicts what the reference predicts, and what the trainer predicts of the same text."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from reference_trainer.lm.__main__ import main
from reference_trainer.lm.plain_torch import PlainModel
from reference_trainer.lm.settings import PLAIN
from tests.reference_trainer.lm.equivalence import CASES, CLOSE, GAP, check
from tests.reference_trainer.lm.reference import ReferenceModel


@pytest.mark.parametrize("variant", PLAIN)
@pytest.mark.parametrize("name", ["tiny", "one token", "odd widths"])
def test_predictions_and_state_are_those_of_the_reference(name: str, variant: str) -> None:
    case = CASES[name]
    model, reference = PlainModel(case.config, case.weights()), ReferenceModel(case.config, case.weights())
    for number, ids in enumerate(case.chunks()):
        expected = reference.chunk(ids)
        check(model.chunk(ids, variant), expected, GAP[4], f"chunk {number}")
        states = np.stack([np.asarray(state) for state in model.states])
        assert np.abs(states - reference.state).max() <= CLOSE[4] * np.abs(reference.state).max()
    assert model.modulator == pytest.approx(reference.modulator, abs=0.1 / len(ids))


@pytest.mark.usefixtures("own_cache")
def test_the_variants_take_the_chunks_of_the_trainer(tmp_path: Path, corpus_file: Path) -> None:
    results = {}
    for variant in ("as-found", *PLAIN):
        size = "--device host --tokens-per-chunk 300 --samples-per-chunk 4 --max-chunks 2 --warmup-seconds 0"
        out = tmp_path / variant
        assert main([*size.split(), "--corpus", str(corpus_file), "--variant", variant, "--result", str(out)]) == 0
        results[variant] = json.loads(out.read_text())
    for variant in PLAIN:
        for name in ("chunks", "tokens", "loss", "accuracy"):
            assert results[variant][name] == pytest.approx(results["as-found"][name]), f"{name} of {variant}"
