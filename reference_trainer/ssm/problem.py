"""The data types of the sweep: jobs, data, students, fits and outcomes.

A teacher is a diagonal linear state-space model of rank r, h_t = A ∘ h_{t-1} + B x_t and y_t = C · h_t. Its impulse
response is k_t = sum_j C_j A_j^t B_j. It is measured N times: a random sequence of length T is the input, and the
output at its end, y = sum_t x_{T-1-t} k_t, is kept. With N < T many responses fit. Students of dimension d >> r are
fitted to the measurements by gradient descent, or drawn until one fits (guess and check); whether they generalize is
tested with an impulse: the generalization loss is the squared distance of the responses. (Chiang et al., Loss
Landscapes are All You Need, ICLR 2023, for guess and check; Cohen-Karlik et al., On the Implicit Bias of Gradient
Descent for Temporal Extrapolation, AISTATS 2022, for diagonal state-space students and teachers.)

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
"""Seeds, ranks and dimensions are below these; the limits follow from the key of a random stream (draws.Stream)."""
GD: Final = "gd"
GNC: Final = "gnc"
METHODS: Final = (GD, GNC)


class Job(NamedTuple):
    """One cell of the sweep."""

    method: str
    """GD or GNC."""
    rank: int
    """Rank of the teacher."""
    dim: int
    """Dimension of the student."""
    seed: int

    @property
    def name(self) -> str:
        """gd-r2-d64-s7, for example; unique within a sweep."""
        return f"{self.method}-r{self.rank}-d{self.dim}-s{self.seed}"


class Data(NamedTuple):
    """The measurements that the students of a group are fitted to, on the device of the students."""

    inputs: torch.Tensor
    """(S, N, T): the input sequences, with the latest value last."""
    targets: torch.Tensor
    """(S, N): the outputs at their ends."""
    responses: torch.Tensor
    """(S, T): the teachers' impulse responses, of norm 1."""


class Students(NamedTuple):
    """Parameters of S students, (S, d) each."""

    a: torch.Tensor
    b: torch.Tensor
    c: torch.Tensor


@dataclass(frozen=True, slots=True)
class Fit:
    """The result of fitting one student."""

    train_loss: float
    """Mean squared error of the measurements; a student whose output is always 0 has about 1."""
    generalization_loss: float
    """Squared distance of the impulse responses, of which the teacher's has norm 1."""
    fitted: bool
    """Whether the training loss fell below the requested loss before epochs or guesses ran out."""
    epochs: int = 0
    """Number of updates (gradient descent)."""
    guesses: int = 0
    """Number of students drawn, including the one that fitted (guess and check)."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a completed job."""

    job: Job
    fit: Fit
    seconds: float
    """Its share of the time of its group."""
    memory_bytes: int
    """Its share of the memory that its group took: on a GPU torch's peak, else the growth of the process."""
    device: str
    """cpu, cuda:0, ..."""
    points: int = 0
    """Values of sequences that a student processed: passes x N x T. A step of the recorded sweep counts these."""
