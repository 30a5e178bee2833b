"""Gradients of parameters that no optimizer has are found, and those that may be used are not; nothing else changes."""

from __future__ import annotations

import gc
import sys
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from profiler.agent.hooks import _unused_gradients, optimizers, stages
from profiler.agent.hooks.optimizers import _MAX_PASSES, GradientUses
from profiler.agent.patching import STATE
from tests.fakes.watched import watched

torch = pytest.importorskip("torch")
nn = torch.nn
STEPS = 20


class Tuned(nn.Module):  # type: ignore[misc]
    """A backbone and a head."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.backbone = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 16), nn.ReLU())
        self.head = nn.Linear(16, 2)

    def forward(self, x: Any) -> Any:
        return self.head(self.backbone(x))


def train(model: Any, *trained: Any, after: Callable[[], object] = lambda: None) -> None:
    """Train some parts of the model, each with an optimizer of its own."""
    every = [torch.optim.SGD(part.parameters(), lr=0.01) for part in trained]
    for _ in range(STEPS):
        for optimizer in every:
            model.zero_grad()
            model(torch.ones(4, 8)).square().mean().backward()
            optimizer.step()
        after()


@contextmanager
def hooked(tmp_path: Path) -> Iterator[None]:
    """The hooks of passes and of optimizers are at work."""
    with watched(
        tmp_path, (stages.BACKWARD, torch.autograd), (optimizers.PLUGIN, sys.modules["torch.optim.optimizer"])
    ):
        yield


@contextmanager
def searched(tmp_path: Path) -> Iterator[tuple[_unused_gradients.Search, Tuned]]:
    """A search beside the hooks, which the test calls itself, and a model."""
    with hooked(tmp_path):
        yield _unused_gradients.Search(), Tuned()


def fact(tmp_path: Path, program: Callable[[], object]) -> dict[str, Any] | None:
    """What the hook tells of a program."""
    with hooked(tmp_path):
        program()
        assert STATE.recorder is not None
        assert "unused_gradients" not in STATE.recorder.hook_errors
        found: dict[str, Any] | None = STATE.recorder.hook_facts.get("unused_gradients")
    return found


def test_a_backbone_that_no_optimizer_has(tmp_path: Path) -> None:
    model = Tuned()
    found = fact(tmp_path, lambda: train(model, model.head))
    assert found is not None
    assert (found["tensors"], found["largest"]) == (4, [16, 16])
    assert found["bytes"] == sum(4 * parameter.numel() for parameter in model.backbone.parameters())
    assert 0.0 < found["share"] < 1.0
    assert (found["file"], found["function"]) == (__file__, "train")
    assert ".backward()" in Path(__file__).read_text().splitlines()[found["line"] - 1]


def test_a_backbone_that_an_earlier_optimizer_trained(tmp_path: Path) -> None:
    def program(model: Tuned) -> None:
        train(model, model)
        train(model, model.head)

    found = fact(tmp_path, partial(program, Tuned()))
    assert found is not None
    assert found["tensors"] == 4


def test_optimizers_without_end_do_not_prolong_the_search(tmp_path: Path) -> None:
    def program(model: Tuned) -> None:
        for _ in range(_unused_gradients._MAX_SEARCHES + 1):
            train(model, model)
        train(model, model.head)

    assert fact(tmp_path, partial(program, Tuned())) is None


def test_a_teacher_within_another_object(tmp_path: Path) -> None:
    class Distiller:
        def __init__(self) -> None:
            self.teacher, self.student = nn.Linear(8, 8), nn.Linear(8, 8)

        def train(self) -> None:
            optimizer = torch.optim.SGD(self.student.parameters(), lr=0.01)
            for _ in range(STEPS):
                x = torch.ones(2, 8)
                (self.teacher(x) - self.student(x)).square().mean().backward()
                optimizer.step()

    found = fact(tmp_path, Distiller().train)
    assert found is not None
    assert (found["tensors"], found["largest"]) == (2, [8, 8])


class Gan:
    """A generator and a discriminator, each trained with an optimizer of its own."""

    def __init__(self, *, detached: bool) -> None:
        self.generator, self.discriminator = nn.Linear(4, 8), nn.Linear(8, 2)
        self.detached = detached

    def train(self) -> None:
        parts = self.generator, self.discriminator
        optimizers = [torch.optim.SGD(part.parameters(), lr=0.01) for part in parts]
        for _ in range(STEPS):
            fake = self.generator(torch.ones(3, 4))
            judged = fake.detach() if self.detached else fake
            self.step(self.discriminator(judged).mean() + self.discriminator(torch.ones(3, 8)).mean(), optimizers[1])
            self.step(self.discriminator(self.generator(torch.ones(3, 4))).mean(), optimizers[0])

    def step(self, loss: Any, optimizer: Any) -> None:
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def test_a_generator_that_is_not_detached(tmp_path: Path) -> None:
    found = fact(tmp_path, Gan(detached=False).train)
    assert found is not None
    assert (found["tensors"], found["discarded"], found["largest"]) == (2, 2, [8, 4])
    assert 0.0 < found["assumed"] < found["share"] < 1.0
    assert found["function"] == "Gan.step"


def test_the_line_of_the_pass_with_most_unused_work(tmp_path: Path) -> None:
    def program() -> None:
        model = Tuned()
        optimizer = torch.optim.SGD(model.head.parameters(), lr=0.01)
        for _ in range(STEPS):
            model(torch.ones(64, 8)).mean().backward()
            model.head(torch.ones(1, 16)).mean().backward()
            optimizer.step()
            model.zero_grad()

    found = fact(tmp_path, program)
    assert found is not None
    assert "ones(64, 8)" in Path(__file__).read_text().splitlines()[found["line"] - 1]


def test_a_loss_needs_the_gradients_of_the_inputs_of_a_module_that_it_does_not_train(tmp_path: Path) -> None:
    assert not (fact(tmp_path, Gan(detached=True).train) or {}).get("share")


def test_a_module_resets_the_gradients_of_optimizers_that_have_no_other_parameters() -> None:
    """A program may reset those of one layer before each step, so that it does not learn."""
    call, model = (("train.py", 1),), Tuned()
    optimizer = torch.optim.SGD(model.backbone.parameters(), lr=0.01)
    for part, is_discarded in ((model.backbone[2], False), (model.backbone, True), (model, True)):
        uses = GradientUses()
        uses.passed(call)
        uses.zeroed(part, [optimizer])
        assert uses.is_discarded(optimizer, call) is is_discarded
        uses.passed(call)
        uses.stepped(optimizer)
        assert not uses.is_discarded(optimizer, call)


class Sam(torch.optim.Optimizer):  # type: ignore[misc]
    """Sharpness-aware minimization: it looks at the gradients of a first pass, and another optimizer steps."""

    def __init__(self, parameters: Any) -> None:
        super().__init__(parameters, {})
        self.base = torch.optim.SGD(self.param_groups, lr=0.01)


def test_an_optimizer_that_steps_by_another_one(tmp_path: Path) -> None:
    def program() -> None:
        model = Tuned()
        sam, other = Sam(model.backbone.parameters()), torch.optim.SGD(model.head.parameters(), lr=0.01)
        for _ in range(STEPS):
            model(torch.ones(4, 8)).mean().backward()
            for optimizer in (sam.base, other):
                optimizer.step()
            for optimizer in (sam, other):
                optimizer.zero_grad()

    assert fact(tmp_path, program) is None


def test_an_optimizer_of_an_id_that_another_one_had(tmp_path: Path) -> None:
    with watched(tmp_path, (optimizers.PLUGIN, sys.modules["torch.optim.optimizer"])):
        call, uses = (("train.py", 1),), optimizers.SEEN.uses
        model = Tuned()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        uses.passed(call)
        optimizer.zero_grad()
        assert uses.is_discarded(optimizer, call)
        key = id(optimizer)
        del optimizer
        gc.collect()
        assert not any(key in each for each in (uses._from, uses._used, uses._zeroed))


def test_resetting_gradients_never_fails(tmp_path: Path) -> None:
    model = Tuned()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)  # made before the recording
    optimizer.parameters = list(model.parameters())
    with watched(tmp_path, (optimizers.PLUGIN, sys.modules["torch.optim.optimizer"])):
        optimizers.SEEN.uses.passed((("train.py", 1),))
        optimizer.zero_grad()
        assert STATE.recorder is not None
        assert "TypeError" in STATE.recorder.hook_errors["unused_gradients"]


def all_trained(model: Tuned) -> None:
    train(model, model)


def frozen(model: Tuned) -> None:
    model.backbone.requires_grad_(False)
    train(model, model.head)


def two_optimizers(model: Tuned) -> None:
    train(model, model.head, model.backbone)


def no_optimizer(model: Tuned) -> None:
    for _ in range(STEPS):
        model(torch.ones(4, 8)).mean().backward()


def updated_by_hand(model: Tuned) -> None:
    def update() -> None:
        for parameter in model.backbone.parameters():
            parameter.data -= 0.01 * (1.0 + parameter.grad.abs())

    train(model, model.head, after=update)


def gradients_given_to_hooks(model: Tuned) -> None:
    for parameter in model.backbone.parameters():
        parameter.register_hook(lambda _: None)
    train(model, model.head)


def optimizer_of_a_flat_copy(model: Tuned) -> None:
    optimizer = torch.optim.SGD(nn.Linear(2, 2).parameters(), lr=0.01)
    for _ in range(STEPS):
        model(torch.ones(4, 8)).mean().backward()
        optimizer.step()


def added_to_a_frozen_base(model: Tuned) -> None:
    model.requires_grad_(False)
    extra = nn.Linear(8, 2)
    optimizer = torch.optim.SGD(extra.parameters(), lr=0.01)
    for _ in range(STEPS):
        x = torch.ones(4, 8)
        (model(x) + extra(x)).mean().backward()
        optimizer.step()


@pytest.mark.parametrize(
    "program",
    [
        all_trained, frozen, two_optimizers, no_optimizer, updated_by_hand, gradients_given_to_hooks,
        optimizer_of_a_flat_copy, added_to_a_frozen_base,
    ],
)  # fmt: skip
def test_healthy_programs(tmp_path: Path, program: Callable[[Tuned], None]) -> None:
    assert fact(tmp_path, lambda: program(Tuned())) is None


def test_results_stay_and_nothing_is_kept(tmp_path: Path) -> None:
    plain = Tuned()
    train(plain, plain.head)
    references: list[weakref.ref[Any]] = []
    expected = plain.state_dict()

    def program() -> None:
        model = Tuned()
        train(model, model.head)
        assert all(torch.equal(value, expected[name]) for name, value in model.state_dict().items())
        pairs = zip(model.parameters(), plain.parameters(), strict=True)
        assert all(torch.equal(one.grad, other.grad) for one, other in pairs)
        references.extend(weakref.ref(each) for each in (model, *model.parameters()))

    gc.disable()
    try:
        assert fact(tmp_path, program) is not None
        assert [reference for reference in references if reference() is not None] == []
    finally:
        gc.enable()


def test_an_error_is_reported_and_ends_the_search(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("a graph of another kind")

    monkeypatch.setattr(_unused_gradients, "_graph", fail)
    model = Tuned()
    with hooked(tmp_path):
        train(model, model.head)
        assert STATE.recorder is not None
        assert STATE.recorder.hook_errors == {"unused_gradients": "RuntimeError: a graph of another kind"}


def test_a_function_that_computes_needed_gradients_too_is_divided(tmp_path: Path) -> None:
    class Adapted(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.first, self.base = nn.Linear(8, 8), nn.Linear(8, 8)

        def forward(self, x: Any) -> Any:
            return self.base(self.first(x))

    adapted = Adapted()
    found = fact(tmp_path, lambda: train(adapted, adapted.first))
    assert found is not None
    assert found["tensors"] == 2
    assert 0.0 < found["assumed"] <= found["share"]


def test_a_graph_that_is_too_large_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_unused_gradients, "_MAX_NODES", 3)
    model = Tuned()
    reason = {"code": "large-graph", "values": {"functions": 3}}
    assert fact(tmp_path, lambda: train(model, model.head)) == {"not_judged": reason}


def test_sharded_parameters_are_left_alone(tmp_path: Path) -> None:
    """FSDP computes gradients for tensors that it makes of all shards, which no optimizer has."""
    distributed = pytest.importorskip("torch.distributed")
    fsdp = pytest.importorskip("torch.distributed.fsdp")
    distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
    try:
        model = Tuned()
        mesh = distributed.device_mesh.init_device_mesh("cpu", (1,))
        fsdp.fully_shard(model.backbone, mesh=mesh, reshard_after_forward=False)
        found = fact(tmp_path, lambda: train(model, model))
    finally:
        distributed.destroy_process_group()
    assert found == {"not_judged": {"code": "sharded-parameters", "values": {}}}


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_compiled_models(tmp_path: Path, backend: str) -> None:
    model = Tuned()
    compiled = torch.compile(model, backend=backend)
    assert fact(tmp_path, lambda: train(compiled, model)) is None
    found = fact(tmp_path / "ill", lambda: train(compiled, model.head))
    assert found is not None
    assert (found["tensors"], found["largest"]) == (4, [16, 16])


def test_passes_of_two_threads_end_the_search(tmp_path: Path) -> None:
    """One begins while another runs: the search counts each once, and keeps nothing of later ones."""
    with searched(tmp_path) as (search, model):
        optimizer = torch.optim.SGD(model.head.parameters(), lr=0.01)
        ends: list[Callable[[], None]] = []
        for _ in range(STEPS):
            losses = [model(torch.ones(4, 8)).mean() for _ in range(2)]
            ends += [end for loss in losses if (end := search.begin((loss,), {})) is not None]
            for loss in losses:
                loss.backward()
            optimizer.step()
        states = [search.is_over, *((end(), search.is_over)[1] for end in ends)]
        assert states == [False] * 4 + [True]
        assert STATE.recorder is not None
        assert STATE.recorder.hook_errors == {}


def test_passes_without_functions_and_of_other_kinds_are_harmless(tmp_path: Path) -> None:
    model = Tuned()

    def program() -> None:
        optimizer = torch.optim.SGD(model.head.parameters(), lr=0.01)
        for _ in range(STEPS):
            torch.zeros((), requires_grad=True).backward()
            model(torch.ones(4, 8)).mean().backward(retain_graph=True)
            optimizer.step()

    found = fact(tmp_path, program)
    assert found is not None
    assert found["tensors"] == 4


def test_a_program_whose_passes_are_all_of_another_kind_is_soon_left_alone(tmp_path: Path) -> None:
    with searched(tmp_path) as (search, model):
        train(model, model.head)
        for _ in range(STEPS):
            assert search.begin((model(torch.ones(4, 8)).mean(),), {"create_graph": True}) is None
    assert search.is_over


def test_a_search_begins_anew_only_after_the_passes_of_the_last_one(tmp_path: Path) -> None:
    with searched(tmp_path) as (search, model):
        optimizer = torch.optim.SGD(model.head.parameters(), lr=0.01)
        end = None
        while end is None:
            loss = model(torch.ones(4, 8)).mean()
            end = search.begin((loss,), {})
            loss.backward()
            optimizer.step()
        for _ in range(_unused_gradients._MAX_SKIPPED):
            assert search.begin((model(torch.ones(4, 8)).mean(),), {"create_graph": True}) is None
        further = torch.optim.SGD(model.head.parameters(), lr=0.01)
        assert search.is_over
        end()
        assert not search.is_over
        assert search.begin((model(torch.ones(4, 8)).mean(),), {}) is None, "the first steps of this optimizer"
        further.step()


def test_passes_are_followed_for_a_while_only() -> None:
    uses = GradientUses()
    for _ in range(2 * _MAX_PASSES):
        uses.passed((("train.py", 1),))
    assert uses.is_over
    assert len(uses._passes) == _MAX_PASSES


def test_memory_that_is_not_there_is_not_read() -> None:
    parameter = nn.Parameter(torch.ones(64))
    assert _unused_gradients._fingerprint(parameter) is not None
    parameter.untyped_storage().resize_(0)
    assert _unused_gradients._fingerprint(parameter) is None
    part = nn.Parameter(torch.ones(64)[32:])
    part.untyped_storage().resize_(0)
    assert _unused_gradients._fingerprint(part) is None
