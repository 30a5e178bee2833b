"""Whether a tensor that is read on the CPU would be on a GPU, as the program's source tells."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from profiler.agent.hooks import _descent, functions, tensors
from profiler.agent.recorder import Recorder
from tests.fakes import hooks

torch = pytest.importorskip("torch")

PROGRAM = """
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

device = "cpu"
model = nn.Linear(4, 3).to(device)
criterion = nn.CrossEntropyLoss()
numbers = list(range(100))
loader = DataLoader(TensorDataset(torch.randn(8, 4), torch.randint(3, (8,))), 4)


class Meter:
    def __init__(self):
        self.value = self.sum = self.average = 0
        self.count = 0

    def update(self, value, n=1):
        self.value = value
        self.sum += value * n
        self.count += n
        self.average = self.sum / self.count

    def __str__(self):
        return "{value:.2f} {average:.2f}".format(**self.__dict__)


class Items(Dataset):
    def __len__(self):
        return 4

    def __getitem__(self, index):
        item = torch.ones(4).to(device) * index
        assert item.sum() >= 0
        return item


class Checked(nn.Module):
    def forward(self, x):
        if x.isnan().any():
            raise ValueError
        return x


class Agent:
    def __init__(self):
        self.net = nn.Linear(4, 2)

    def act(self, state):
        with torch.no_grad():
            return self.net(state).argmax().item()


def batch():
    ix = torch.randint(90, (4,))
    x = torch.stack([torch.tensor(numbers[i : i + 4], dtype=torch.float32) for i in ix])
    y = torch.stack([torch.tensor(numbers[i + 1]) for i in ix]) % 3
    if device == "cuda":
        x, y = x.pin_memory().to(device, non_blocking=True), y.to(device)
    else:
        x, y = x.to(device), y.to(device)
    return x, y


@torch.no_grad()
def estimated():
    losses = torch.zeros(3)
    for k in range(3):
        x, y = batch()
        losses[k] = criterion(model(x), y).item()
    return losses.mean()


def accuracy(output, target, topk):
    with torch.no_grad():
        _, predicted = output.topk(max(topk), 1, True, True)
        correct = predicted.t().eq(target.view(1, -1))
        result = []
        for k in topk:
            result.append(correct[:k].reshape(-1).float().sum(0, keepdim=True))
        return result


def test(model, device, loader):
    correct = loss = 0
    with torch.no_grad():
        for data, target in loader:
            data, target = data.to(device), target.to(device)
            output = model(data)
            loss += F.cross_entropy(output, target).item()
            correct += output.argmax(1, keepdim=True).eq(target.view(-1, 1)).sum().item()


def metered():
    top = Meter()
    for data, target in loader:
        first, _ = accuracy(model(data), target, (1, 2))
        top.update(first[0], 4)
    str(top)


def value(x):
    return x.item()


def reads_of_the_batch_itself():
    for data, target in loader:
        if target.sum() > 100:
            break


def reads_of_moved_data():
    for data, target in loader:
        data = data.to(device)
        if data.sum() > 100:
            break


def choice():
    for i in range(3):
        if torch.rand(1) < 0.5:
            pass


def helper():
    output = model(torch.zeros(1, 4)).detach()
    return value(output.sum()), value(torch.zeros(())), value(output.max())


def copies():
    output = model(torch.zeros(1, 4)).detach()
    host = output.to("cpu")
    return host.numpy(), host.sum().item(), output.cpu().tolist()


def by_hand():
    weight = torch.zeros(3, requires_grad=True)
    return (weight * torch.ones(3)).sum().item()


def listed():
    history = []
    with torch.no_grad():
        history.append(model(torch.zeros(1, 4)).mean())
    return sum(history).item()
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    file = tmp_path_factory.mktemp("program") / "train.py"
    file.write_text(PROGRAM)
    space: dict[str, Any] = {"__name__": "train"}
    exec(compile(PROGRAM, str(file), "exec"), space)
    return space


@pytest.fixture
def recorder(tmp_path: Path) -> Iterator[Recorder]:
    with hooks.installed(Recorder(tmp_path, "light"), tensors.PLUGIN, functions.PLUGIN, module=torch) as made:
        yield made


def reads(recorder: Recorder) -> dict[str, float]:
    recorder.write_tallies(recorder.clocks()[0])
    return recorder.counters


CASES: dict[str, tuple[Callable[[dict[str, Any]], object], int]] = {
    "indices from a generator": (lambda program: program["batch"](), 0),
    "evaluation without gradients": (lambda program: program["estimated"](), 3),
    "a test loop of PyTorch's examples": (
        lambda program: program["test"](program["model"], program["device"], program["loader"]),
        4,
    ),
    "a meter that keeps tensors": (lambda program: program["metered"](), 2),
    "a batch that was not moved": (lambda program: program["reads_of_the_batch_itself"](), 0),
    "a batch that was moved": (lambda program: program["reads_of_moved_data"](), 2),
    "random numbers": (lambda program: program["choice"](), 0),
    "one helper for both": (lambda program: program["helper"](), 2),
    "copies to the CPU": (lambda program: program["copies"](), 2),
    "parameters without a module": (lambda program: program["by_hand"](), 1),
    "a list of losses": (lambda program: program["listed"](), 1),
    "a data set": (lambda program: program["Items"]()[1], 0),
    "within a module": (lambda program: program["Checked"]()(torch.zeros(2)), 1),
    "a module within an agent": (lambda program: program["Agent"]().act(torch.zeros(4)), 1),
}


@pytest.mark.parametrize("name", CASES)
def test_only_reads_of_tensors_from_the_device_count(program: dict[str, Any], recorder: Recorder, name: str) -> None:
    run, expected = CASES[name]
    for _ in range(2):  # the second time from the tallies
        run(program)
    assert reads(recorder) == ({"would_sync": 2 * expected} if expected else {})


def test_reads_by_code_without_source_are_an_estimate(recorder: Recorder) -> None:
    eval(compile("x.item()", "nowhere.py", "eval"), {"x": torch.ones(())})
    assert reads(recorder) == {"might_sync": 1}


@pytest.mark.parametrize("action", ["always", "error"])
def test_a_search_gives_no_warnings_about_the_source(
    tmp_path: Path, recorder: Recorder, recwarn: pytest.WarningsRecorder, action: Any
) -> None:
    file = tmp_path / "escapes.py"
    file.write_text('PATTERN = "\\d"\ndef read(model):\n    return model(torch.zeros(1, 4)).detach().sum().item()\n')
    space: dict[str, Any] = {"__name__": "escapes", "torch": torch}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        exec(compile(file.read_text(), str(file), "exec"), space)
    warnings.simplefilter(action)
    filters = list(warnings.filters)
    space["read"](torch.nn.Linear(4, 3))
    assert (recwarn.list, warnings.filters) == ([], filters)
    assert reads(recorder) == {"would_sync": 1}


def test_each_file_is_parsed_once_and_only_the_first_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_descent, "_MAX_PARSED", 30)
    monkeypatch.setattr(_descent, "_MAX_FILES", 5)
    rules = _descent.Descent(torch)
    for number in range(4):
        (tmp_path / f"{number}.py").write_text("x = 1  # 12 ch")
    trees = [rules.source(str(tmp_path / f"{number}.py"), {}) for number in (*range(4), *range(4))]
    assert [tree is not None for tree in trees] == [True, True, False, False] * 2
    assert trees[0] is trees[4], "parsing a large file takes 0.1 s"
    (tmp_path / "bad.py").write_text("x = (")
    assert rules.source(str(tmp_path / "bad.py"), {}) is None
    assert str(tmp_path / "bad.py") in rules._sources
    assert rules.source(str(tmp_path / "sixth.py"), {}) is None
    assert len(rules._sources) == 5
