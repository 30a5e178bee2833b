"""Gives pytest two fixtures: a virtual CUDA device, and an assertion on the waits of a training step.

def test_a_step_does_not_wait(assert_syncs):
    model = Model().cuda()
    assert_syncs(lambda: training_step(model), at_most=1)
"""

from __future__ import annotations

import linecache
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, Protocol

import pytest

if TYPE_CHECKING:
    from profiler.exact.model import Counts


_SCOPE: Final = "profiler_scope"


class AssertSyncs(Protocol):
    """Runs a step, and fails if the host waits for the device more often than allowed."""

    def __call__(self, step: Callable[[], object], at_most: int = 0, *, warmup: int = 1) -> None:
        """Run the step and count its waits for the device.

        :param at_most: number of allowed waits in one step.
        :param warmup: number of uncounted steps before, because the first one may do more.
        :raises AssertionError: there were more waits (the message lists the lines), or the step uses no CUDA device and
            would always pass.
        """
        ...


def _scope(fixture_name: str, config: pytest.Config) -> Literal["function", "module"]:  # noqa: ARG001 - pytest passes it by name
    """Return the scope of the fixtures, as set by `profiler_scope` in pytest's configuration."""
    return "module" if config.getini(_SCOPE) == "module" else "function"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the setting for the lifetime of a virtual device."""
    about = "lifetime of the virtual CUDA device: function (a test), or module (all tests of a file)"
    parser.addini(_SCOPE, about, default="function")


@pytest.fixture(scope=_scope)
def virtual_cuda() -> Iterator[Counts]:
    """Create a virtual CUDA device for the test or module, and yield its counts. Skip the test if there is a GPU."""
    import profiler

    context = profiler.virtual_cuda()
    try:
        counts = context.__enter__()
    except RuntimeError as error:
        pytest.skip(f"virtual CUDA devices: {error}")
    try:
        yield counts
    finally:
        context.__exit__(None, None, None)


@pytest.fixture(scope=_scope)
def assert_syncs(virtual_cuda: Counts) -> AssertSyncs:
    """Return `assert_syncs(step, at_most=0)`, with a virtual CUDA device."""

    def check(step: Callable[[], object], at_most: int = 0, *, warmup: int = 1) -> None:
        from profiler.exact import has_used_memory

        __tracebackhide__ = True
        for _ in range(warmup):
            step()
        virtual_cuda.clear()
        step()
        if virtual_cuda.syncs > at_most:
            raise AssertionError(_message(virtual_cuda, at_most))
        if not virtual_cuda.events and not has_used_memory():
            raise AssertionError(
                "the step uses no CUDA device: create its model and batches in the test, on the device"
            )

    return check


def _message(counts: Counts, at_most: int) -> str:
    """Return the message of a failure: each line that waits, the most frequent first."""
    waits: Counter[tuple[str, int, str]] = Counter()
    for (event, site), number in counts.events.items():
        if event.waits:
            called = f" in {_shown(site.library)}" if site and site.library else ""
            waits[site.file if site else "an unknown line", site.line if site else 0, event.name + called] += number
    times = "once" if counts.syncs == 1 else f"{counts.syncs} times"
    lines = [f"the step waits for the device {times}; at most {at_most} allowed:"]
    for (file, line, name), number in waits.most_common():
        source = linecache.getline(file, line).strip()
        lines.append(f"    {_shown(file)}:{line}: {name}, {number}×{f': {source}' if source else ''}")
    return "\n".join(lines)


def _shown(file: str) -> str:
    """Return a file relative to the working directory, or to the folder of the installed packages."""
    path = Path(file)
    if path.is_relative_to(Path.cwd()):
        return str(path.relative_to(Path.cwd()))
    return file.rpartition("/site-packages/")[2]
