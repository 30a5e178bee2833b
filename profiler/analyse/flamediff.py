"""Two flame graphs laid over each other, frame by frame along the same path."""

from __future__ import annotations

from profiler.analyse.model import FlameDiff, FlameNode


def flame_difference(before: FlameNode, after: FlameNode) -> FlameDiff:
    """The union of both trees: a frame that one of them lacks counts 0 there.

    Frames are the same where name and file are the same along the whole path; lines may differ between versions. The
    roots are taken as the same whatever their names. Children come with the largest of either side first.
    """
    return FlameDiff(before.name, before.value, after.value, after.site or before.site, _children(before, after))


def _children(before: FlameNode | None, after: FlameNode | None) -> tuple[FlameDiff, ...]:
    olds, news = _by_key(before), _by_key(after)
    return tuple(
        sorted(
            (_pair(olds.get(key), news.get(key)) for key in {**olds, **news}),
            key=lambda node: (-max(node.before, node.after), node.name),
        )
    )


def _pair(before: FlameNode | None, after: FlameNode | None) -> FlameDiff:
    either = after or before
    assert either is not None
    return FlameDiff(
        either.name,
        before.value if before else 0.0,
        after.value if after else 0.0,
        either.site,
        _children(before, after),
    )


def _by_key(node: FlameNode | None) -> dict[tuple[str, str], FlameNode]:
    return {} if node is None else {(c.name, c.site.file if c.site else ""): c for c in node.children}
