"""Random numbers of an experiment: each is determined by its position in a stream, so every way of drawing agrees.

The value of element i of a stream follows from (seed, stream, i) alone: not from the variant, from how many are drawn
together, from the engine or from the device. As found they are made by NumPy on the host in fp64 and copied; with
`device_data` a compiled kernel makes them in fp32 where they are used. The two agree to the rounding of fp32.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
import torch

from reference_trainer.ssm.problem import Job, Students

A_LOW: Final = 0.5
A_HIGH: Final = 0.95
"""A is uniform between the two, in teachers, guesses and initial students, so that the state decays in some steps."""

TEACHER, INPUTS, INIT, GUESSES = range(4)
_WORDS: Final = 4  # words of a block


class Stream(NamedTuple):
    """A sequence of random numbers that overlaps with no other."""

    seed: int
    kind: int
    """TEACHER, INPUTS, INIT or GUESSES."""
    rank: int = 0
    dim: int = 0

    @property
    def key(self) -> tuple[int, int]:
        """The Philox key: two 64-bit words. The settings of a sweep are limited so that they fit into it."""
        return self.seed, self.kind | self.rank << 8 | self.dim << 32


def teacher(job: Job) -> Stream:
    """The stream of the teacher's a, b and c, laid out like a student of dimension r."""
    return Stream(job.seed, TEACHER, job.rank)


def inputs(job: Job) -> Stream:
    """The stream of the input sequences, which depend on the seed but not on the teacher or the student."""
    return Stream(job.seed, INPUTS)


def c_scale(dim: int) -> float:
    """The factor of a drawn student's C that gives its infinite impulse response E ||k||^2 = 1.

    With b and c normal, E k_t^2 = d scale^2 E a^(2t), and sum_t E a^(2t) = E 1 / (1 - a^2), which is
    (artanh(high) - artanh(low)) / (high - low) for a uniform between the two.
    """
    return 1 / math.sqrt(dim * (math.atanh(A_HIGH) - math.atanh(A_LOW)) / (A_HIGH - A_LOW))


def words(stream: Stream, first: int, blocks: int) -> np.ndarray:
    """(4 * blocks,) uint64: the blocks of the stream that begin with block `first`."""
    generator = np.random.Philox(counter=first, key=np.array(stream.key, np.uint64))
    return generator.random_raw(_WORDS * blocks)


def uniforms(values: np.ndarray) -> np.ndarray:
    """Convert words to numbers (n + 0.5) / 2^23 in (0, 1), which fp32 represents exactly."""
    return ((values >> np.uint64(41)) + 0.5) * 2.0**-23


def normals(values: np.ndarray) -> np.ndarray:
    """Convert words (..., even) to normals; each pair of words gives two (Box and Muller, 1958)."""
    u = uniforms(values)
    radius, angle = np.sqrt(-2 * np.log(u[..., 0::2])), 2 * np.pi * u[..., 1::2]
    out = np.empty_like(u)
    out[..., 0::2] = radius * np.cos(angle)
    out[..., 1::2] = radius * np.sin(angle)
    return out


def host_normals(stream: Stream, count: int) -> np.ndarray:
    """(count,): the first normals of a stream."""
    return normals(words(stream, 0, -(-count // _WORDS)))[:count]


def host_students(stream: Stream, first: int, count: int, dim: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """a, b, c (count, dim) of `count` students of a stream, beginning with student `first`; b and c have variance 1."""
    blocks = -(-dim // _WORDS)
    drawn = words(stream, first * 3 * blocks, count * 3 * blocks).reshape(count, 3, _WORDS * blocks)
    a = A_LOW + (A_HIGH - A_LOW) * uniforms(drawn[:, 0])
    b, c = normals(drawn[:, 1]), normals(drawn[:, 2])
    return a[:, :dim], b[:, :dim], c[:, :dim]


def fill_normals(streams: Sequence[Stream], out: torch.Tensor) -> None:
    """Fill `out` (S, n) in fp32: row i gets the first normals of stream i."""
    from reference_trainer.ssm.kernels import fill, launch

    if launch.on_host(out.device):
        fill.host_normals(*launch.arrays(out), _keys(streams))
        return
    rows, columns = out.shape
    blocks = -(-columns // _WORDS)
    grid = -(-rows * blocks // fill.THREADS)
    launch.launch(fill.fill_normals, grid, fill.THREADS, out, _on(out.device, _keys(streams)), rows, blocks)


def draw_students(
    streams: Sequence[Stream],
    first: int,
    count: int,
    dim: int,
    *,
    scales: tuple[float, float] = (1.0, 1.0),
    device: torch.device,
) -> Students:
    """(len(streams) * count, dim), fp32: `count` students of each stream, beginning with student `first`.

    :param scales: factors of b and of c.
    """
    from reference_trainer.ssm.kernels import fill, launch

    rows = len(streams) * count
    a, b, c = torch.empty(3, rows, dim, dtype=torch.float32, device=device).unbind()
    numbers = tuple(np.float32(value) for value in (A_LOW, A_HIGH - A_LOW, *scales))
    if launch.on_host(device):
        fill.host_students(*launch.arrays(a, b, c), _keys(streams), first, count, *numbers)
        return Students(a, b, c)
    blocks = -(-dim // _WORDS)
    grid = -(-rows * 3 * blocks // fill.THREADS)
    sizes = rows, blocks, first, count
    launch.launch(fill.fill_students, grid, fill.THREADS, a, b, c, _on(device, _keys(streams)), *sizes, *numbers)
    return Students(a, b, c)


def _keys(streams: Sequence[Stream]) -> np.ndarray:
    return np.array([stream.key for stream in streams], np.uint64)


def _on(device: torch.device, values: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(values.view(np.int64)).to(device)


def guesses(
    jobs: Sequence[Job],
    first: int,
    count: int,
    *,
    device_data: bool,
    device: torch.device,
    kind: int = GUESSES,
    scale: float = 1.0,
) -> Students:
    """Draw `count` students from number `first` on for each job, (len(jobs) * count, d) in fp32, in their order.

    :param jobs: all of one dimension.
    :param scale: factor of b and c.
    """
    (dim,) = {job.dim for job in jobs}
    streams = [Stream(job.seed, kind, job.rank, dim) for job in jobs]
    scales = scale, scale * c_scale(dim)
    if device_data:
        return draw_students(streams, first, count, dim, scales=scales, device=device)
    drawn = [host_students(stream, first, count, dim) for stream in streams]
    a, b, c = (np.concatenate(part) if len(part) > 1 else part[0] for part in zip(*drawn, strict=True))
    # an fp64 tensor converted to fp32, as parameters of torch are
    a, b, c = (torch.from_numpy(part).to(device, torch.float32) for part in (a, scales[0] * b, scales[1] * c))
    return Students(a, b, c)


def initial(jobs: Sequence[Job], init_scale: float, *, device_data: bool, device: torch.device) -> Students:
    """The initial students of gradient descent, (S, d) in fp32: drawn as guesses are, with b and c times a scale."""
    return guesses(jobs, 0, 1, device_data=device_data, device=device, kind=INIT, scale=init_scale)
