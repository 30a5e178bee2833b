"""Batches are made in one process, or in forked workers whose records must survive their end."""

from __future__ import annotations

import functools
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from profiler.agent.hooks import loader, loader_workers
from profiler.agent.patching import STATE
from profiler.run import store
from profiler.run.load import load
from profiler.run.model import Run
from profiler.run.tables import WORKER_OF
from tests.fakes.programs import ROOT, script
from tests.fakes.watched import regions, watched
from tests.recorded.directories import info

torch = pytest.importorskip("torch")
dataloader = torch.utils.data.dataloader
DataLoader = dataloader.DataLoader
utilities = torch.utils.data._utils
HOOKS = (
    (loader.PLUGIN, dataloader),
    (loader_workers.PLUGIN, utilities.fetch),
    (loader_workers.PLUGIN, utilities.worker),
)

WORKERS = """
import os, sys
from pathlib import Path
from profiler.agent.patching import STATE
from profiler.agent.recorder import Recorder
from profiler.agent.hooks import loader, loader_workers
import torch.utils.data
from torch.utils.data import DataLoader, Dataset, IterableDataset, get_worker_info

directory = Path(sys.argv[1])
def begin():
    STATE.recorder = Recorder(directory, "standard")
begin()
os.register_at_fork(after_in_child=begin)
utilities = torch.utils.data._utils
loader.PLUGIN.install(torch.utils.data.dataloader)
for module in (utilities.fetch, utilities.worker):
    loader_workers.PLUGIN.install(module)

class Squares(Dataset):
    def __len__(self):
        return 12
    def __getitem__(self, index):
        return torch.full((4,), index * index)

class Halves(IterableDataset):
    def __iter__(self):
        yield from range(get_worker_info().id, 6, 2)

def pad(rows):
    return torch.stack(rows)

def sums(batches):
    return [int(batch.sum()) for batch in batches]

print(sums(DataLoader(Squares(), batch_size=3, collate_fn=pad, num_workers=2)))
lasting = DataLoader(Halves(), batch_size=3, num_workers=2, persistent_workers=True)
print(sums(lasting), sums(lasting))
del lasting  # ends its workers; at the end of the program they would be killed
STATE.recorder.flush()
"""


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Run]:
    """The output of a program with workers, and its run."""
    folder = tmp_path_factory.mktemp("workers")
    store.create(folder / "run")
    store.write_manifest(folder / "run", info(level="standard", state="complete"))
    program = script(folder, f"import sys; sys.path.insert(0, {str(ROOT)!r})\n{WORKERS}")
    words = [sys.executable, str(program), str(folder / "run")]
    done = subprocess.run(words, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout, load(folder / "run")


@pytest.fixture
def run(recorded: tuple[str, Run]) -> Run:
    return recorded[1]


@pytest.fixture
def trainer(run: Run) -> int:
    """The process that asks for batches."""
    return int(run.boundaries["pid"][0])


def named(run: Run, name: str) -> Any:
    return run.regions[np.isin(run.regions["name"], [n for n, text in enumerate(run.names) if text == name])]


def test_batches_are_what_they_were(recorded: tuple[str, Run]) -> None:
    squares = [4 * sum(index**2 for index in range(start, start + 3)) for start in range(0, 12, 3)]
    assert recorded[0].splitlines() == [str(squares), "[6, 9] [6, 9]"]


def test_every_worker_records_its_regions(run: Run, trainer: int) -> None:
    workers = set(run.regions["pid"].tolist()) - {trainer}
    assert len(workers) == 4
    for name in ("worker start", "waiting for an index", "dataset", "collate", "waiting for a place"):
        assert set(named(run, name)["pid"].tolist()) == workers, name
    assert len(named(run, "worker start")) == 4
    assert len(named(run, "collate")) == 4 + 2 * 2, "batches of the squares, and of the halves in two epochs"
    said = [(int(row["pid"]), int(row["bytes"])) for row in run.calls if run.names[row["name"]] == WORKER_OF]
    assert {parent for _, parent in said} == {trainer}, "whose they are"
    assert {worker for worker, _ in said} == workers


def test_workers_ask_for_no_steps(run: Run, trainer: int) -> None:
    assert set(run.boundaries["pid"].tolist()) == {trainer}
    asked = Counter(run.names[number] for number in run.boundaries["name"])
    assert sorted(asked.values()) == [5, 6]


def test_sending_a_batch_is_recorded_on_the_queues_own_thread(run: Run) -> None:
    sent, main = named(run, "send"), named(run, "collate")
    assert len(sent)
    assert not set(sent["tid"].tolist()) & set(main["tid"].tolist())


def test_receiving_is_a_part_of_the_wait(run: Run, trainer: int) -> None:
    received, data = named(run, "receive"), named(run, "data")
    assert set(received["pid"].tolist()) == {trainer}
    assert len(received) >= 4 + 2 * 2, "one for each batch at least"
    assert all(((data["begin"] <= one["begin"]) & (one["end"] <= data["end"])).any() for one in received)


def test_origins_are_the_users_lines(run: Run) -> None:
    told = {
        (run.names[row["name"]], run.sites[row["site"]].function if row["site"] >= 0 else "")
        for row in run.calls
        if run.names[row["name"]] != WORKER_OF
    }
    expected = {("dataset", "Squares.__getitem__"), ("dataset", "Halves.__iter__"), ("collate", "pad"), ("collate", "")}
    assert told == expected


class Doubles(torch.utils.data.Dataset):  # type: ignore[misc, name-defined]
    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> int:
        return 2 * index


def gathered(rows: list[int], extra: int) -> list[int]:
    return [*rows, extra]


def test_in_one_process_they_are_within_the_wait(tmp_path: Path) -> None:
    with watched(tmp_path, *HOOKS) as loaded:
        subset = torch.utils.data.Subset(Doubles(), [3, 1])
        (batch,) = DataLoader(subset, batch_size=2, collate_fn=functools.partial(gathered, extra=9))
        run = loaded()
    assert batch == [6, 2, 9]
    assert regions(run) == ["loader start", "data", "dataset", "collate", "data"]
    data, dataset, collate = (named(run, name)[0] for name in ("data", "dataset", "collate"))
    assert data["begin"] <= dataset["begin"] <= collate["begin"] <= collate["end"] <= dataset["end"] <= data["end"]
    assert [site.function for site in run.sites] == ["Doubles.__getitem__", "gathered"]


def joined(rows: list[int]) -> list[int]:
    return rows


class Nested(torch.utils.data.Dataset):  # type: ignore[misc, name-defined]
    """Its items come from a loader of its own, which collates with a function of its own."""

    def __len__(self) -> int:
        return 2

    def __getitem__(self, index: int) -> list[int]:
        (row,) = DataLoader(Doubles(), batch_size=4, collate_fn=functools.partial(gathered, extra=index))
        return list(row)


def origins(run: Run, region: str) -> list[str]:
    """For each region of that name, the function that was recorded last before it."""
    said = run.calls[[run.names[name] == region for name in run.calls["name"]]]
    return [run.sites[said["site"][said["begin"] <= row["begin"]][-1]].function for row in named(run, region)]


def test_a_loader_within_a_dataset_has_its_own_origins(tmp_path: Path) -> None:
    with watched(tmp_path, *HOOKS) as loaded:
        batches = list(DataLoader(Nested(), batch_size=1, collate_fn=joined))
        run = loaded()
    assert batches == [[[0, 2, 4, 6, 0]], [[0, 2, 4, 6, 1]]]
    assert origins(run, "collate") == ["gathered", "joined", "gathered", "joined"]
    assert origins(run, "dataset") == ["Doubles.__getitem__", "Nested.__getitem__"] * 2, "the inner one ends first"


def test_each_recorder_gets_the_origins(tmp_path: Path) -> None:
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        with watched(tmp_path / name, *HOOKS) as loaded:
            list(DataLoader(Doubles(), batch_size=4, collate_fn=joined))
            run = loaded()
        assert origins(run, "dataset") == ["Doubles.__getitem__"]
        assert origins(run, "collate") == ["joined"]


def test_an_idle_worker_has_written_all(tmp_path: Path) -> None:
    class Indices:
        def empty(self) -> bool:
            return True

        def get(self) -> None:
            raise KeyboardInterrupt  # killed while it waits

    class Results:
        def put(self, result: object) -> None:
            pass

    def loop(index_queue: Any, data_queue: Any) -> None:
        data_queue.put(1)
        index_queue.get()

    with watched(tmp_path) as loaded:
        recorder = STATE.recorder
        assert recorder is not None
        queues = loader_workers._Indices(Indices(), recorder), loader_workers._Results(Results(), recorder)
        with pytest.raises(KeyboardInterrupt):
            loop(*queues)
        recorder.flush = lambda: None  # type: ignore[method-assign]
        assert regions(loaded())[:2] == ["worker start", "waiting for a place"]
