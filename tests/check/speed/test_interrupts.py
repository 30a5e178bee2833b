"""Signals while programs run: noted, obeyed where nothing is lost, and handlers as they were afterwards."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator

import pytest

from profiler.check.speed import interrupts
from profiler.check.speed.interrupts import came_by, held, obey

STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@pytest.fixture(autouse=True)
def _handlers() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in STOPS}
    interrupts._last.clear()
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", STOPS)
def test_a_signal_waits_until_it_is_obeyed(number: int) -> None:
    assert came_by() is None
    reached = []

    def work() -> None:
        with held():
            os.kill(os.getpid(), number)
            reached.append("after the signal")
            obey()
            reached.append("after it was obeyed")

    with pytest.raises(KeyboardInterrupt):
        work()
    assert reached == ["after the signal"]
    assert came_by() == number


@pytest.mark.parametrize("number", STOPS)
def test_what_nobody_obeyed_is_obeyed_at_the_end(number: int) -> None:
    before = signal.getsignal(number)
    reached = []

    def work() -> None:
        with held():
            os.kill(os.getpid(), number)
            reached.append("the end")

    with pytest.raises(KeyboardInterrupt):
        work()
    assert reached == ["the end"]
    assert signal.getsignal(number) is before


def test_a_signal_is_obeyed_once() -> None:
    with held():
        os.kill(os.getpid(), signal.SIGHUP)
        with pytest.raises(KeyboardInterrupt):
            obey()
        obey()


def test_who_ignores_a_signal_goes_on_ignoring_it() -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as nohup does
    with held():
        os.kill(os.getpid(), signal.SIGHUP)
        obey()
    assert came_by() is None
    assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN


def test_a_handler_that_cannot_be_put_back_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interrupts, "_STOPS", (signal.SIGHUP,))
    monkeypatch.setattr(signal, "getsignal", lambda number: None)
    changed: list[int] = []
    monkeypatch.setattr(signal, "signal", lambda number, handler: changed.append(number))
    with held():
        pass
    monkeypatch.undo()
    assert changed == []


def test_another_thread_holds_nothing() -> None:
    before = signal.getsignal(signal.SIGTERM)
    seen = []

    def hold() -> None:
        with held():
            seen.append(signal.getsignal(signal.SIGTERM))

    thread = threading.Thread(target=hold)
    thread.start()
    thread.join()
    assert seen == [before]
