"""In which order sides take turns: random, and each side as often first as last."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random


def turns(sides: Sequence[str], pairs: int, random: Random) -> list[str]:
    """`pairs` turns of each of `sides`: blocks of ABBA or BAAB (with three sides ABCCBA and its like), at random.

    A drift of the machine that is even over a block falls on all sides alike.
    """
    order: list[str] = []
    while len(order) < pairs * len(sides):
        block = list(sides)
        random.shuffle(block)
        order += [*block, *reversed(block)]
    return order[: pairs * len(sides)]


def starts(sides: Sequence[str], number: int, random: Random, *, swapped: bool) -> tuple[str, ...]:
    """In which order the programs of round `number` are started: the first two sides change places from round to
    round.

    :param swapped: the other way round than rounds of that number have it.
    """
    first, second, *others = sides
    pair = [first, second] if bool(number % 2) != swapped else [second, first]
    for other in others:
        pair.insert(random.randrange(len(pair) + 1), other)
    return tuple(pair)
