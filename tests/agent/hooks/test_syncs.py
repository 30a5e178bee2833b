"""torch's sync debug mode as a source: its warnings are counted and never seen, whatever the program filters."""

from __future__ import annotations

import io
import pickle
import warnings
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from profiler.agent.hooks import syncs
from profiler.agent.hooks.syncs import LOADING, NESTED, OPEN
from profiler.agent.patching import STATE, patch_count, unpatch
from profiler.agent.recorder import Recorder
from profiler.run.tables import CallKind
from tests.fakes import hooks

WARNING = syncs.MESSAGE + " (Triggered internally at /pytorch/c10/cuda/CUDAFunctions.cpp:350.)"


class Torch(SimpleNamespace):
    """The parts of torch that the mode needs; `initialise` is the program's first use of CUDA."""

    def __init__(self) -> None:
        self.queued: list[Callable[[], None]] = []
        self.mode = 0
        self.told = False
        cuda = SimpleNamespace(__name__="torch.cuda", _lazy_call=self.queued.append)
        cuda.set_sync_debug_mode = self._set
        cuda.get_sync_debug_mode = lambda: self.mode
        super().__init__(__name__="torch", cuda=cuda, _C=SimpleNamespace(_cuda_set_sync_debug_mode=self._set))

    def _set(self, mode: int) -> None:
        if not self.told:  # TORCH_WARN_ONCE
            self.told = True
            warnings.warn(syncs.PROTOTYPE + " and does not yet detect all", UserWarning, stacklevel=2)
        self.mode = mode

    def initialise(self) -> None:
        for call in self.queued:
            call()
        self.queued.clear()


def emit() -> None:
    """Warn at the line of the Python code that called, as torch does from C."""
    warnings.warn(WARNING, UserWarning, stacklevel=2)


@pytest.fixture
def recorder(tmp_path: Path) -> Recorder:
    return Recorder(tmp_path, "standard")


@pytest.fixture
def torch(recorder: Recorder, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.setattr(warnings, "filters", list(warnings.filters))
    fake: Any = Torch()
    with hooks.installed(recorder, syncs.PLUGIN, module=fake):
        yield fake


def test_is_off_until_the_program_uses_cuda(torch: Any) -> None:
    filters = list(warnings.filters)
    assert torch.mode == 0
    assert len(torch.queued) == 1
    torch.initialise()
    assert torch.mode == 1
    assert torch.cuda.get_sync_debug_mode() == 0, "the program has not set it"
    assert warnings.filters[1:] == filters


@pytest.mark.parametrize("action", ["always", "error"])
def test_the_program_does_not_get_torchs_warning_about_the_mode(torch: Any, recorder: Recorder, action: Any) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter(action)
        torch.initialise()
    assert torch.told
    assert torch.mode == 1
    assert caught == []
    assert "cuda_syncs" not in recorder.hook_errors


@pytest.mark.parametrize("began", [True, False])
def test_nothing_is_left_or_begins_when_the_recording_has_ended(torch: Any, began: bool) -> None:
    before = list(warnings.filters)
    if began:
        torch.initialise()
    unpatch()
    STATE.recorder = None
    if not began:
        torch.initialise()
    assert (torch.mode, torch.told) == (0, began)
    assert warnings.filters == before
    with pytest.warns(UserWarning, match=syncs.MESSAGE):
        emit()


@pytest.mark.parametrize(
    "doing",
    [
        lambda: None,
        lambda: warnings.simplefilter("ignore"),
        lambda: warnings.simplefilter("error"),
        lambda: warnings.filterwarnings("always", category=UserWarning),
        warnings.resetwarnings,
    ],
)
def test_counts_every_warning_and_shows_none(torch: Any, recorder: Recorder, doing: Callable[[], None]) -> None:
    torch.initialise()
    printed = io.StringIO()
    with redirect_stderr(printed):
        doing()
        for _ in range(3):
            emit()  # the same line each time: Python's memory of shown warnings must not hide any
    assert printed.getvalue() == ""
    assert recorder.counters == {"debug_syncs": 3, "syncs": 3}
    calls = hooks.calls(recorder)
    assert [(name, kind) for name, kind, _ in calls] == [("other", CallKind.SYNC)] * 3
    assert {Path(site.file).name for _, _, site in calls} == {Path(__file__).name}


def test_survives_catch_warnings_that_began_before(torch: Any, recorder: Recorder) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        torch.initialise()
        emit()
        warnings.warn("the program's own", stacklevel=1)
    emit()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        emit()
    assert [str(warning.message) for warning in caught] == ["the program's own"]
    assert recorder.counters["debug_syncs"] == 3


def test_a_wait_in_a_wrapper_of_ours_is_not_counted_again(torch: Any, recorder: Recorder) -> None:
    torch.initialise()
    OPEN.inside = NESTED
    try:
        emit()
    finally:
        OPEN.inside = False
    assert recorder.counters == {"debug_syncs": 1, "debug_syncs_seen": 1}


def test_a_wait_of_a_loader_without_a_wrapper_is_counted(torch: Any, recorder: Recorder) -> None:
    torch.initialise()
    OPEN.inside = LOADING
    try:
        emit()
    finally:
        OPEN.inside = 0
    assert (recorder.counters, len(hooks.calls(recorder))) == ({"debug_syncs": 1, "syncs": 1}, 1)


def test_the_mode_is_the_programs_once_it_sets_it(torch: Any, recorder: Recorder) -> None:
    torch.initialise()
    torch.cuda.set_sync_debug_mode(1)
    assert torch.cuda.get_sync_debug_mode() == 1
    with pytest.warns(UserWarning, match=syncs.MESSAGE):
        emit()
    assert recorder.counters == {}
    torch.cuda.set_sync_debug_mode(2)
    unpatch()
    assert torch.mode == 2, "it outlives the recording"


@pytest.mark.filterwarnings(f"ignore:{syncs.PROTOTYPE}")
def test_a_program_that_sets_it_first_keeps_it(torch: Any) -> None:
    torch.cuda.set_sync_debug_mode(2)
    torch.initialise()
    assert torch.mode == 2


def test_a_mode_that_cannot_be_set_leaves_cuda_to_the_program(torch: Any, recorder: Recorder) -> None:
    def refuse(mode: int) -> None:
        raise RuntimeError("no such mode")

    torch._C._cuda_set_sync_debug_mode = refuse
    torch.initialise()
    assert "no such mode" in recorder.hook_errors.pop("cuda_syncs")


def test_filters_can_be_handed_to_workers(torch: Any) -> None:
    torch.initialise()
    copied = pickle.loads(pickle.dumps(warnings.filters[0]))
    assert copied[1].match(WARNING) is None
    assert b"profiler" not in pickle.dumps(warnings.filters[0])


def test_torch_without_cuda_is_left_alone() -> None:
    before = patch_count()
    syncs.PLUGIN.install(SimpleNamespace(__name__="torch", _C=SimpleNamespace()))  # type: ignore[arg-type]
    assert patch_count() == before
