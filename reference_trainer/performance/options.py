"""The same settings as options: a file first, and what the command line says wins."""

from __future__ import annotations

import argparse
from collections.abc import Collection
from dataclasses import fields
from pathlib import Path
from typing import Any, Final

from reference_trainer.errors import TrainerError
from reference_trainer.performance.config import PRECISIONS, SECTION, PerformanceConfig, read_section

_NAMES: Final = tuple(field.name for field in fields(PerformanceConfig))


def add_options(parser: argparse.ArgumentParser, unused: Collection[str] = ()) -> None:
    """Add a group of options, one a setting, and `--performance FILE`.

    :param unused: settings that a program always refuses: they are understood, for that, and not listed.
    """
    group = parser.add_argument_group("performance")

    def add(option: str, **how: Any) -> None:
        if option.removeprefix("--").replace("-", "_") in unused:
            how["help"] = argparse.SUPPRESS
        group.add_argument(option, **how)

    default = PerformanceConfig()
    switch = argparse.BooleanOptionalAction
    add("--performance", metavar="FILE", help=f"take these settings from the section [{SECTION}] of a TOML file")
    add(
        "--max-load",
        type=float,
        metavar="SHARE",
        help=f"give a device no work that is busier (default: {default.max_load})",
    )
    add(
        "--max-memory",
        type=float,
        metavar="SHARE",
        help=f"of a device's memory that may be in use (default: {default.max_memory})",
    )
    add("--num-devices", type=int, metavar="N", help="most devices (default: all)")
    add("--cudnn-benchmark", action=switch, help="let cuDNN measure which algorithm is fastest (default: no)")
    add("--cudnn-deterministic", action=switch, help="the same bits from cuDNN every time (default: no)")
    add("--empty-cache-frequency", type=int, metavar="N", help="give unused memory back after so many (default: never)")
    add("--tf32", action=switch, help="fp32 products of 10 bits of mantissa (default: no)")
    add("--precision", help=f"{', '.join(PRECISIONS)} (default: {default.precision})")


def from_options(arguments: argparse.Namespace) -> PerformanceConfig:
    """The settings that a command line of `add_options` asks for.

    :raises TrainerError: the file or one of the settings is wrong.
    """
    if arguments.performance == "":
        raise TrainerError("--performance is empty: name a file, or leave --performance out")
    values: dict[str, Any] = read_section(Path(arguments.performance)) if arguments.performance else {}
    options = {name: getattr(arguments, name) for name in _NAMES}
    return PerformanceConfig(**(values | {name: value for name, value in options.items() if value is not None}))
