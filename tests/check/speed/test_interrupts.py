"""Deferred signals: recorded, raised where nothing is lost, and the handlers restored afterwards."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator

import pytest

from profiler.check.speed import processes
from profiler.check.speed.processes import deferred_signals, last_signal, raise_deferred

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@pytest.fixture(autouse=True)
def _handlers() -> Iterator[None]:
    handlers = {number: signal.getsignal(number) for number in SIGNALS}
    processes._last.clear()
    yield
    for number, handler in handlers.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", SIGNALS)
@pytest.mark.parametrize("raised_within", [True, False])
def test_a_signal_is_raised_once_when_asked_or_at_the_end(number: int, raised_within: bool) -> None:
    handler = signal.getsignal(number)
    assert last_signal() is None
    reached = []

    def work() -> None:
        with deferred_signals():
            os.kill(os.getpid(), number)
            reached.append("after the signal")
            if raised_within:
                with pytest.raises(KeyboardInterrupt):
                    raise_deferred()
                raise_deferred()

    if raised_within:
        work()
    else:
        with pytest.raises(KeyboardInterrupt):
            work()
    assert reached == ["after the signal"]
    assert last_signal() == number
    assert signal.getsignal(number) is handler


def test_an_ignored_signal_stays_ignored() -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as nohup does
    with deferred_signals():
        os.kill(os.getpid(), signal.SIGHUP)
        raise_deferred()
    assert last_signal() is None
    assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN


def test_a_handler_that_cannot_be_restored_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    changed: list[int] = []
    monkeypatch.setattr(signal, "getsignal", lambda number: None)
    monkeypatch.setattr(signal, "signal", lambda number, handler: changed.append(number))
    with deferred_signals():
        pass
    monkeypatch.undo()
    assert changed == []


def test_other_threads_defer_nothing() -> None:
    handlers = [signal.getsignal(signal.SIGTERM)]

    def defer() -> None:
        with deferred_signals():
            handlers.append(signal.getsignal(signal.SIGTERM))

    thread = threading.Thread(target=defer)
    thread.start()
    thread.join()
    assert handlers[0] is handlers[1]
