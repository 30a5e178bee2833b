"""The checks of all kernels, for whoever runs them: few that the simulator can do, and many; and the ways to force."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import ModuleType

from reference_trainer.kernels import decode_token, recurrent_step, time_blocks
from tests.reference_trainer.kernels import checks, checks_backward, checks_learning
from tests.reference_trainer.kernels.checks import Case, Check

FEW: list[Case] = [*checks.FEW, *checks_backward.FEW, *checks_learning.FEW]
MANY: list[Case] = [*checks.MANY, *checks_backward.MANY, *checks_learning.MANY]
SCANS = (
    checks.scan_carries_its_state,
    checks_backward.scan_keeps_what_it_did,
    checks_backward.scan_backward_is_the_gradient,
)


@dataclass(frozen=True, slots=True)
class Way:
    """Another way that a CUDA kernel may go, by constants of its module, and what is checked on it."""

    name: str
    constants: tuple[tuple[ModuleType, str, int], ...]
    few: tuple[Case, ...]
    many: tuple[Case, ...]

    @contextmanager
    def forced(self) -> Iterator[None]:
        before = [getattr(module, name) for module, name, _ in self.constants]
        try:
            for module, name, value in self.constants:
                setattr(module, name, value)
            yield
        finally:
            for (module, name, _), value in zip(self.constants, before, strict=True):
                setattr(module, name, value)


def of(chosen: tuple[Check, ...], cases: list[Case]) -> tuple[Case, ...]:
    return tuple(case for case in cases if case[0] in chosen)


def sized(*sizes: tuple[int, int]) -> tuple[Case, ...]:
    return tuple((check, *size) for check in SCANS for size in sizes)


TOKEN = (checks.step_carries_its_state, checks.decode_takes_the_first)
WAYS = (
    Way(
        "cublas",
        tuple((module, "ONE_BLOCK_ELEMENTS", 0) for module in (recurrent_step, decode_token)),
        of(TOKEN, FEW),
        of(TOKEN, MANY),
    ),
    # Blocks of 16 steps: chunks of one, of one and a half, of a whole number of them, and of no multiple.
    Way(
        "time blocks",
        ((time_blocks, "SHORTEST", 8),),
        sized((1, 2), (16, 2), (24, 70), (48, 3), (51, 2)),
        sized((1, 2), (16, 2), (24, 300), (48, 3), (51, 70), (1000, 65), (3000, 256)),
    ),
    Way("serial", ((time_blocks, "SERIAL_WIDTH", 1),), sized((35, 3)), sized((51, 70), (3000, 256))),
)


LARGE: list[Case] = [
    *((check, 3000, width) for check in SCANS for width in (32, 4096)),
    (checks.score_counts, 3000, 4096),
    (checks_learning.cross_entropy_by_tiles, 3000, 4096),
    (checks_learning.embed_backward_adds, 3000, 4096),
    (checks_backward.norm_is_the_length, 50_000_000, 6),
    (checks_backward.adamw_steps, 3_000_000, 2_000_000),
]
"""Real shapes: a chunk of the preset base. For a GPU, where they are quick."""


def name(way: Way, case: Case) -> str:
    return f"{checks.name(case)}-{way.name}"
