"""Warnings that name a wrapper of ours are shown at the line of the program that called it."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from types import CodeType

import pytest

from profiler.agent.hooks import tensors
from profiler.agent.patching import patch_count, unpatch


@pytest.fixture
def hooked() -> Iterator[None]:
    count = patch_count()
    tensors.WARNING_SITES.installers["torch"](None)
    yield
    unpatch(count)


def wrapper_of_ours(stacklevel: int) -> CodeType:
    source = f"warnings.warn('careful', stacklevel={stacklevel})"
    return compile(source, tensors.__file__.replace("warning_sites", "tensors"), "exec")


@pytest.mark.usefixtures("hooked")
def test_a_warning_of_a_wrapper_names_the_line_that_called_it() -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        exec(wrapper_of_ours(1))
    assert [(warning.filename, str(warning.message)) for warning in caught] == [(__file__, "careful")]


@pytest.mark.usefixtures("hooked")
def test_other_warnings_keep_their_line() -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        exec(compile("warnings.warn('careful')", "/x/library.py", "exec"))
        exec(wrapper_of_ours(2))
    assert [warning.filename for warning in caught] == ["/x/library.py", __file__]


def test_without_the_hook_a_warning_names_the_wrapper() -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        exec(wrapper_of_ours(1))
    assert caught[0].filename.endswith("/agent/hooks/tensors.py")
