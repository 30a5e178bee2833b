"""What holds for all tests, and fixtures of more than one folder."""

from __future__ import annotations

import gc
import os
import signal
import tempfile
from collections.abc import Iterator
from typing import Any

import pytest

from tests.browser import browsing
from tests.fakes.programs import ROOT

_HOME = pytest.StashKey[tempfile.TemporaryDirectory[str]]()


def pytest_configure(config: pytest.Config) -> None:
    """Hugging Face's libraries stay offline and keep their files apart: they read both when first imported.

    And Ctrl-C is heeded, here and in what tests start, and so are hanging up and quitting. What is printed goes to a
    file, unless a test sets COLUMNS.
    """
    home = config.stash[_HOME] = tempfile.TemporaryDirectory(prefix="huggingface-", ignore_cleanup_errors=True)
    os.environ.update(HF_HUB_OFFLINE="1", HF_HOME=home.name)
    for name in ("CI", "GITHUB_ACTIONS", "GITHUB_STEP_SUMMARY", "COLUMNS"):  # a gate is stricter in a job
        os.environ.pop(name, None)
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as whoever starts us in the background leaves it
        signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (signal.SIGHUP, signal.SIGQUIT):  # as nohup does, and a shell that starts us in the background
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)


def pytest_collection_finish() -> None:
    """Keep modules and collected tests out of garbage collections, which take a tenth of all time otherwise."""
    gc.freeze()


def pytest_unconfigure(config: pytest.Config) -> None:
    config.stash[_HOME].cleanup()


@pytest.fixture
def importable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets recorded programs import `profiler.marks` from this checkout."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    """One headless Chromium for a module: while it is open, Playwright's event loop keeps asyncio.run from working."""
    pytest.importorskip("playwright.sync_api")
    with browsing.browser() as started:
        yield started
