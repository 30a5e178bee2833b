"""Stacks that hooks and torch really make are read as what they are: a file or function of another name fails here."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from profiler.agent.hooks import loader, optimizers, regions, stages, tensors
from profiler.analyse.sampling.frames import Stack, classify_stack
from profiler.run.code_origin import PackageFolders
from profiler.run.model import Site
from tests.fakes.programs import ROOT
from tests.fakes.watched import watched

torch = pytest.importorskip("torch")
PLACES = PackageFolders(str(ROOT / "profiler"), str(Path(torch.__file__).parent))


def read(frame: FrameType | None) -> Stack:
    """The stack that `frame` is the leaf of, as a sampler writes it."""
    sites = []
    while frame is not None:
        name = getattr(frame.f_code, "co_qualname", frame.f_code.co_name)
        sites.append(Site(frame.f_code.co_filename, frame.f_lineno or 0, name))
        frame = frame.f_back
    return classify_stack(tuple(reversed(sites)), PLACES)


def within(do: Callable[[], object], function: str) -> list[Stack]:
    """The stacks of all calls of functions of this name while `do` runs."""
    stacks: list[Stack] = []

    def note(frame: FrameType, event: str, called: Any) -> None:
        if event == "c_call" and called.__name__ == function:
            stacks.append(read(frame))

    sys.setprofile(note)
    try:
        do()
    finally:
        sys.setprofile(None)
    return stacks


@pytest.fixture(autouse=True)
def hooked(tmp_path: Path) -> Iterator[None]:
    hooks: list[tuple[Any, Any]] = [
        (tensors.TENSORS, torch),
        (tensors.FUNCTIONS, torch),
        (regions.REGIONS, torch),
        (stages.BACKWARD, torch.autograd),
        (loader.PLUGIN, torch.utils.data.dataloader),
        (optimizers.PLUGIN, sys.modules["torch.optim.optimizer"]),
    ]
    with ExitStack() as stack:
        stack.enter_context(watched(tmp_path, *hooks))
        yield


def step(closure: Callable[[], Any] | None = None) -> None:
    weight = torch.ones(3, requires_grad=True)
    optimizer = torch.optim.SGD([weight], lr=0.1, foreach=False)
    weight.grad = torch.ones(3)
    optimizer.step(closure)


def repeat() -> None:
    torch.ones(2).repeat_interleave(torch.tensor([1, 2]))


@pytest.mark.parametrize(
    ("do", "function", "cover"),
    [
        (lambda: torch.ones(1).item(), "item", "call"),
        (lambda: torch.ones(1).tolist(), "tolist", "call"),
        (lambda: bool(torch.ones(1)), "__bool__", "call"),
        (lambda: torch.ones(1).nonzero(), "nonzero", "call"),
        (lambda: torch.nonzero(torch.ones(1)), "nonzero", "call"),
        (repeat, "repeat_interleave", "call"),
        (lambda: torch.ones(1).to(torch.float64), "to", "copy"),
        (lambda: torch.ones(1).cpu(), "cpu", "copy"),
        (lambda: torch.ones(1, requires_grad=True).sum().backward(), "run_backward", "backward"),
        (step, "add_", "optimizer"),
        (lambda: torch.save({"weight": torch.ones(3)}, io.BytesIO()), "data_ptr", "checkpoint"),
    ],
)
def test_what_covers_an_operation(do: Callable[[], object], function: str, cover: str) -> None:
    stacks = within(do, function)
    assert stacks, f"no call of {function} was seen"
    assert {stack.stratum for stack in stacks} == {cover}
    assert {Path(stack.site.file).name for stack in stacks} == {Path(__file__).name}, "the line is the user's"


def test_phases_of_a_step() -> None:
    [inside] = within(step, "add_")
    assert (inside.phase, inside.in_optimizer) == ("optimizer", True)
    model = torch.nn.Linear(2, 2)
    [forward] = within(lambda: model(torch.ones(1, 2)), "linear")
    assert (forward.phase, forward.stratum) == ("forward", "")
    [back] = within(lambda: model(torch.ones(1, 2)).sum().backward(), "run_backward")
    assert back.phase == "backward"


def test_a_closure_is_no_part_of_the_optimizers() -> None:
    seen: list[Stack] = []
    step(lambda: seen.append(read(sys._getframe())))
    assert [(stack.stratum, stack.phase, stack.in_optimizer) for stack in seen] == [("", "between", False)]


def test_what_a_loader_asks_for_is_data() -> None:
    seen: list[Stack] = []

    class Rows:
        def __len__(self) -> int:
            return 2

        def __getitem__(self, index: int) -> int:
            seen.append(read(sys._getframe()))
            return index

    assert len(list(torch.utils.data.DataLoader(Rows()))) == 2
    assert [(stack.stratum, stack.phase) for stack in seen] == [("data", "data")] * 2
    assert {stack.site.function.rpartition(".")[2] for stack in seen} == {"__getitem__"}


def test_tokenizers(tmp_path: Path) -> None:
    library = pytest.importorskip("tokenizers")
    tokenizer = library.Tokenizer(library.models.WordLevel({"a": 0, "?": 1}, unk_token="?"))
    with watched(tmp_path / "tokens", (regions.TOKENIZERS, library)):
        stacks = within(lambda: tokenizer.encode("a"), "encode")
    assert [stack.stratum for stack in stacks] == ["tokenize"]


def test_rows_of_a_data_set(tmp_path: Path) -> None:
    library = pytest.importorskip("datasets")
    rows = library.Dataset.from_dict({"text": ["a", "b"]})
    seen: list[Stack] = []

    def noted(row: Any) -> Any:
        seen.append(read(sys._getframe()))
        return row

    rows.set_transform(noted)
    with watched(tmp_path / "rows", (regions.REGIONS, library.arrow_dataset)):
        assert rows[0] == {"text": "a"}
    assert [stack.stratum for stack in seen] == ["data"]
