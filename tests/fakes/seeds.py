"""One test of many seeds: as thorough as a test of each, and without the cost of so many tests."""

from __future__ import annotations

from collections.abc import Callable


def for_each_seed(count: int) -> Callable[[Callable[[int], None]], Callable[[], None]]:
    """Call the decorated test with 0 to count - 1; an error names its seed."""

    def decorate(check: Callable[[int], None]) -> Callable[[], None]:
        def test() -> None:
            for seed in range(count):
                try:
                    check(seed)
                except BaseException as error:
                    error.add_note(f"seed {seed}")
                    raise

        test.__name__, test.__doc__, test.__module__ = check.__name__, check.__doc__, check.__module__
        return test

    return decorate
