"""Settings for the use of a machine by a trainer, from a file or the command line."""

from __future__ import annotations

import argparse
import tomllib
from collections.abc import Collection, Mapping
from dataclasses import Field, dataclass, fields, replace
from math import isfinite
from pathlib import Path
from typing import Any, Final, Self

from reference_trainer.errors import TrainerError

SECTION: Final = "performance"
"""Name of the section in a TOML file."""
PRECISIONS: Final = ("fp32", "bf16", "fp16")


@dataclass(frozen=True, slots=True)
class PerformanceConfig:
    """Limits on the use of a machine, and torch's switches; all defaults except that of `max_memory` are torch's."""

    max_load: float = 1.0
    """Share, above 0 and up to 1: a device that is busier than that gets no work."""
    max_load_wait: float = 0.0
    """Seconds to wait until a device is at most as busy as `max_load`; 0: it gets no work, at once."""
    max_memory: float = 0.9
    """Share, above 0 and up to 1, of a device's memory that may be in use."""
    num_devices: int | None = None
    """Largest number of devices to use; None: all."""
    cudnn_benchmark: bool = False
    """cuDNN tries its algorithms on each new size and keeps the fastest."""
    cudnn_deterministic: bool = False
    """cuDNN uses only algorithms that give the same bits every time."""
    empty_cache_frequency: int = 0
    """Jobs (of the language model: chunks) after which torch gives unused device memory back; 0: never."""
    tf32: bool = False
    """Matrix products of fp32 round their inputs to 10 bits of mantissa."""
    precision: str = "fp32"
    """Precision of the operations that torch's autocast narrows: fp32, bf16 or fp16."""

    def __post_init__(self) -> None:
        for field in fields(self):
            _check_type(field, getattr(self, field.name))
        for name in ("max_load", "max_memory"):
            value = getattr(self, name)
            if not (isfinite(value) and 0 < value <= 1):
                raise _wrong(name, value, "a share, above 0 and at most 1")
        if not 0 <= self.max_load_wait < float("inf"):
            raise _wrong("max_load_wait", self.max_load_wait, "a number of seconds, 0 (do not wait) or more")
        if self.max_load_wait and self.max_load == 1:
            raise TrainerError("performance: max_load_wait waits for nothing at max_load 1, any load: lower max_load")
        if self.num_devices is not None and self.num_devices < 1:
            raise _wrong("num_devices", self.num_devices, "at least 1")
        if self.empty_cache_frequency < 0:
            raise _wrong("empty_cache_frequency", self.empty_cache_frequency, "0 (never) or more")
        if self.precision not in PRECISIONS:
            raise _wrong("precision", repr(self.precision), f"one of {', '.join(PRECISIONS)}")
        if self.cudnn_benchmark and self.cudnn_deterministic:
            # Even among deterministic algorithms, another one may be the fastest in the next run.
            raise TrainerError("performance: cudnn_benchmark and cudnn_deterministic contradict each other: choose one")
        if self.tf32 and self.precision != "fp32":
            raise TrainerError(f"performance: tf32 is of fp32 products, precision is {self.precision}: leave one out")

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read the section `[performance]` of a TOML file; settings that it does not name keep their defaults.

        :raises TrainerError: the file cannot be read, has no such section, or contains a wrong setting.
        """
        return cls(**read_section(path))

    @property
    def changed(self) -> tuple[str, ...]:
        """Settings that differ from their defaults."""
        return tuple(field.name for field in fields(self) if getattr(self, field.name) != field.default)


def read_section(path: Path) -> dict[str, Any]:
    """The settings in the section of a file.

    :raises TrainerError: the file cannot be read, has no such section, or contains a wrong setting.
    """
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise TrainerError(f"--performance {path}: {error.strerror}") from None
    except ValueError as error:  # no TOML, no UTF-8
        raise TrainerError(f"--performance {path}: {' '.join(str(error).split())}") from None
    section = document.get(SECTION)
    if not isinstance(section, dict):
        raise TrainerError(f"--performance {path}: there is no section [{SECTION}] in it")
    names = [field.name for field in fields(PerformanceConfig)]
    for name in section:
        if name not in names:
            raise TrainerError(f"--performance {path}: unknown setting {name!r}, choose from {', '.join(names)}")
    try:
        PerformanceConfig(**section)
    except TrainerError as error:  # the message for a command-line option names no file
        raise TrainerError(f"--performance {path}: {str(error).removeprefix('performance: ')}") from None
    return section


def refuse(config: PerformanceConfig, why: Mapping[str, str]) -> None:
    """Refuse settings that have no effect in this program or on this device.

    :param why: setting -> why it has no effect. Its default is never refused.
    :raises TrainerError: one of them was changed.
    """
    for name in config.changed:
        if name in why:
            raise TrainerError(f"performance setting {name} means nothing here: {why[name]}; leave it out")


def _wrong(name: str, value: object, what: str) -> TrainerError:
    return TrainerError(f"performance: {name} is {value}, it must be {what}")


_TYPES: Final[Mapping[str, tuple[tuple[type, ...], str]]] = {
    "float": ((int, float), "a number"),
    "int": ((int,), "a whole number"),
    "int | None": ((int, type(None)), "a whole number"),
    "bool": ((bool,), "true or false"),
    "str": ((str,), "a text"),
}
"""Annotation of a setting -> the types that a file may give it, and how an error names them."""


def _check_type(field: Field[Any], value: object) -> None:
    """Refuse a value of another type, which a file may contain; in Python, true is a number."""
    kinds, description = _TYPES[str(field.type)]
    if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
        raise _wrong(field.name, repr(value), description)


_NAMES: Final = tuple(field.name for field in fields(PerformanceConfig))
_ORIGINAL_NAMES: Final = {"max_gpu_load": "max_load", "max_gpu_memory": "max_memory", "max_gpus": "num_devices"}


class _Global:
    """Holds the settings of a program that gets no others. Each is an attribute; three have a second name."""

    current = PerformanceConfig()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.current, _ORIGINAL_NAMES.get(name, name))

    def __setattr__(self, name: str, value: Any) -> None:
        setting = _ORIGINAL_NAMES.get(name, name)
        if setting not in _NAMES:
            raise TrainerError(f"performance: unknown setting {name!r}, choose from {', '.join(_NAMES)}")
        object.__setattr__(self, "current", replace(self.current, **{setting: value}))


perf_config: Final = _Global()


def add_options(parser: argparse.ArgumentParser, unused: Collection[str] = ()) -> None:
    """Add a group of options, one a setting, and `--performance FILE`.

    :param unused: settings that a program always refuses: they are parsed, to be refused, but not listed.
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
        "--max-load-wait",
        type=float,
        metavar="SECONDS",
        help="wait at most so long for a device that is busier, and give up then (default: do not wait)",
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
    """Return the settings of a command line that `add_options` extended; `perf_config` has those that it leaves out.

    :raises TrainerError: the file or one of the settings is wrong.
    """
    if arguments.performance == "":
        raise TrainerError("--performance is empty: name a file, or leave --performance out")
    values: dict[str, Any] = read_section(Path(arguments.performance)) if arguments.performance else {}
    options = {name: getattr(arguments, name) for name in _NAMES}
    values |= {name: value for name, value in options.items() if value is not None}
    return replace(perf_config.current, **values)
