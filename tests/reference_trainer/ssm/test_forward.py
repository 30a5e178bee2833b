"""Every way of the forward pass against NumPy in fp64, forward and gradients."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from reference_trainer.ssm import forward
from reference_trainer.ssm.problem import Students
from tests.reference_trainer.ssm.forward_reference import NAMES, case, found, reference

SHAPES = [(1, 1, 1, 1), (2, 3, 5, 4), (3, 4, 24, 64), (2, 2, 33, 9), (1, 2, 256, 30)]
every_way = pytest.mark.parametrize("way", forward.WAYS)
every_shape = pytest.mark.parametrize("shape", SHAPES, ids=str)


@every_way
@every_shape
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.float64, 1e-12)], ids=["fp32", "fp64"])
def test_against_float64(shape: tuple[int, int, int, int], way: str, dtype: torch.dtype, tolerance: float) -> None:
    """Values agree within a share of the largest of a kind: they are sums of T d terms that cancel."""
    students, inputs = case(shape, dtype=dtype)
    for name, values, expected in zip(NAMES, found(students, inputs, way), reference(students, inputs), strict=True):
        assert values.shape == expected.shape
        assert np.abs(values - expected).max() <= tolerance * np.abs(expected).max(), name


@every_way
def test_gradients_by_differences(way: str) -> None:
    """Torch's own check of a gradient, in all directions; channels below 0, at 0 and beyond 1 among them."""
    students, inputs = case((2, 2, 6, 4), dtype=torch.float64)
    with torch.no_grad():
        students.a[0] = torch.tensor([-0.7, 0.0, 1.0, 1.1])

    def outputs(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return forward.respond(Students(a, b, c), inputs, way)

    assert torch.autograd.gradcheck(outputs, (students.a, students.b, students.c))


def squared_errors(students: Students, inputs: torch.Tensor, targets: torch.Tensor) -> tuple[np.ndarray, ...]:
    """Losses, outputs and gradient (3, S, d) in fp64: of an error e, L = sum e^2 / N is 2 / N times sum e^2 / 2."""
    y, k, *_ = reference(students, inputs)
    a, b, c = (values.detach().double().numpy() for values in (students.a, students.b, students.c))
    x = np.repeat(inputs.double().numpy(), len(a) // len(inputs), axis=0)[:, :, ::-1]
    errors = y - targets.double().numpy()
    w = 2 / y.shape[1] * np.einsum("sn,snt->st", errors, x)
    t = np.arange(k.shape[1])
    shared = np.einsum("sdt,st->sd", a[:, :, None] ** t, w)
    slopes = np.einsum("sdt,st->sd", t * a[:, :, None] ** np.maximum(t - 1, 0), w)
    return (errors**2).mean(1), y, np.stack((b * c * slopes, c * shared, b * shared))


@every_way
@pytest.mark.parametrize("sets", [1, 2, 6])
@pytest.mark.parametrize("shape", [(6, 1, 1, 1), (6, 3, 24, 33)], ids=str)
def test_an_epoch_at_once(shape: tuple[int, int, int, int], sets: int, way: str) -> None:
    """Losses and their gradient, whatever the type of the data."""
    students, inputs = case(shape, sets=sets)
    parameters = torch.stack((students.a, students.b, students.c)).detach().requires_grad_()
    targets = torch.from_numpy(np.random.default_rng(2).standard_normal(shape[:2]))
    expected = squared_errors(students, inputs, targets)
    arguments = forward.losses_and_gradient(parameters, inputs, targets, way)
    assert not any(values.requires_grad for values in arguments)
    for values, wanted in zip(arguments, expected, strict=True):
        assert values.shape == wanted.shape
        assert np.abs(values.numpy() - wanted).max() <= 1e-5 * np.abs(wanted).max()


@every_way
@pytest.mark.parametrize("sets", [1, 2, 6])
def test_one_set_of_sequences_for_several_students(way: str, sets: int) -> None:
    students, inputs = case((6, 2, 7, 5), sets=sets)
    for name, values, expected in zip(NAMES, found(students, inputs, way), reference(students, inputs), strict=True):
        assert np.abs(values - expected).max() <= 1e-5 * np.abs(expected).max(), name


@every_way
def test_outputs_alone(way: str) -> None:
    students, inputs = case((2, 3, 9, 4))
    outputs, responses = forward.respond(students, inputs, way)
    assert torch.equal(forward.last_outputs(students, inputs, way), outputs)
    assert (outputs.shape, responses.shape) == ((2, 3), (2, 9))
    outputs, _ = forward.respond(students, inputs[:1], way)
    assert torch.equal(forward.last_outputs(students, inputs[:1].expand(2, 3, 9), way), outputs)


def test_types() -> None:
    """The loop mixes types and returns the wider one; the kernel uses the type of the students."""
    students, inputs = case((2, 3, 9, 4))
    assert forward.last_outputs(students, inputs, forward.LOOP).dtype == torch.float64
    outputs, responses = forward.respond(students, inputs, forward.SCAN)
    assert (outputs.dtype, responses.dtype) == (torch.float32, torch.float32)


@every_way
def test_a_student_gives_the_same_alone(way: str) -> None:
    students, inputs = case((4, 3, 24, 16))
    outputs, responses = forward.respond(students, inputs, way)
    for row in range(4):
        alone = Students(*(values[row : row + 1] for values in (students.a, students.b, students.c)))
        output, response = forward.respond(alone, inputs[row : row + 1], way)
        torch.testing.assert_close(output, outputs[row : row + 1], atol=1e-6, rtol=1e-6)
        torch.testing.assert_close(response, responses[row : row + 1], atol=1e-6, rtol=1e-6)


@every_way
def test_what_is_no_number_stays_none(way: str) -> None:
    """A training that diverged is seen."""
    students, inputs = case((2, 2, 9, 4))
    with torch.no_grad():
        students.b[1, 2] = torch.nan
    outputs, responses = forward.respond(students, inputs, way)
    assert torch.isfinite(outputs[0]).all()
    assert torch.isnan(outputs[1]).all()
    assert torch.isnan(responses[1]).all()


@every_way
def test_inputs_that_are_views(way: str) -> None:
    """Turned round in memory, as a batch of batches is."""
    students, inputs = case((3, 2, 7, 5))
    turned = inputs.transpose(1, 2).contiguous().transpose(1, 2)
    assert not turned.is_contiguous()
    expected = forward.last_outputs(students, inputs, way)
    torch.testing.assert_close(forward.last_outputs(students, turned, way), expected)


def test_as_found_outputs_are_read_out_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Responses are read out at all times."""
    reads = []
    read = forward._read_out
    monkeypatch.setattr(forward, "_read_out", lambda *arguments: [reads.append(1), read(*arguments)][1])
    students, inputs = case((2, 3, 9, 4))
    forward.last_outputs(students, inputs, forward.LOOP)
    assert len(reads) == 1
    forward.respond(students, inputs, forward.LOOP)
    assert len(reads) == 1 + 1 + 9


def test_without_a_graph() -> None:
    students, inputs = case((2, 2, 8, 4))
    with torch.no_grad():
        for way in forward.WAYS:
            assert not forward.last_outputs(students, inputs, way).requires_grad
