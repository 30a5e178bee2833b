"""What is asked, and what comes back: jobs, the data of several of them, the students that were fitted, outcomes.

A teacher is a diagonal linear state-space model of rank r, h_t = A ∘ h_{t-1} + B x_t and y_t = C · h_t. Its impulse
response is k_t = sum_j C_j A_j^t B_j. It is measured N times: a random sequence of length T goes in, and what comes out
at its end, y = sum_t x_{T-1-t} k_t, is kept. With N < T many responses fit. Students of dimension d >> r are fitted to
the measurements by gradient descent, or drawn until one fits (guess and check); whether they generalise is asked by an
impulse: the loss between the responses. (Chiang et al., Loss Landscapes are All You Need, ICLR 2023, for guess and
check; Cohen-Karlik et al., On the Implicit Bias of Gradient Descent for Temporal Extrapolation, AISTATS 2022, for
diagonal state-space students and teachers.)

In all shapes S is the number of students that are worked on together, each with its own teacher: the seeds of a group.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    import torch

SEEDS: Final = 1 << 63
RANKS: Final = 1 << 24
DIMS: Final = 1 << 31
"""Seeds, ranks and dimensions are below these: as much of a random number's name they take (draws.Stream)."""
GD: Final = "gd"
GNC: Final = "gnc"
METHODS: Final = (GD, GNC)


class Job(NamedTuple):
    """One cell of the sweep."""

    method: str
    """GD or GNC."""
    rank: int
    """Of the teacher."""
    dim: int
    """Of the student."""
    seed: int

    @property
    def name(self) -> str:
        """gd-r2-d64-s7: unique within a sweep, and its key in the file of results."""
        return f"{self.method}-r{self.rank}-d{self.dim}-s{self.seed}"


@dataclass(frozen=True, slots=True)
class Data:
    """What the students of a group are fitted to, on the device that they are fitted on."""

    inputs: torch.Tensor
    """(S, N, T): the sequences that went in, the latest value last."""
    targets: torch.Tensor
    """(S, N): what came out at their ends."""
    responses: torch.Tensor
    """(S, T): the teachers' impulse responses, of norm 1."""


@dataclass(frozen=True, slots=True)
class Students:
    """Parameters of S students, (S, d) each."""

    a: torch.Tensor
    b: torch.Tensor
    c: torch.Tensor


@dataclass(frozen=True, slots=True)
class Fit:
    """What became of one student."""

    train_loss: float
    """Mean squared error of the measurements; a student that always says 0 has about 1."""
    generalization_loss: float
    """Squared distance of the impulse responses, of which the teacher's has norm 1."""
    fitted: bool
    """Whether the training loss came below what was asked for, before epochs or guesses ran out."""
    epochs: int = 0
    """Of gradient descent: updates that were made."""
    guesses: int = 0
    """Of guess and check: students that were drawn, the one that fitted among them."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """A job that was done."""

    job: Job
    fit: Fit
    seconds: float
    """Its share of the time of its group."""
    memory_bytes: int
    """Likewise of the memory that its group took: on a GPU torch's peak, else what the process grew by."""
    device: str
    """cpu, cuda:0, ..."""
    points: int = 0
    """Values of sequences that went through a student: passes x N x T. What a step of the recorded sweep counts."""
