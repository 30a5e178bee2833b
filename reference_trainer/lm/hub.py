"""A data set of the Hugging Face hub as documents, streamed by the library `datasets` (the extra `hub`)."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from reference_trainer.errors import TrainerError
from reference_trainer.lm.text_files import TEXT_FIELD, Tally, text_fault

PREFIX: Final = "hub:"
FORM: Final = "hub:NAME[@CONFIGURATION][:SPLIT[:FIELD]]"
MAX_CHARS: Final = 50_000_000
"""A corpus is held in memory whole, and a data set of the hub may be of any size."""
SPLIT: Final = "train"

_LONGEST_REASON: Final = 300  # characters of the library's own words


@dataclass(frozen=True, slots=True)
class HubName:
    """What `hub:NAME[@CONFIGURATION][:SPLIT[:FIELD]]` says; NAME is of the hub, or a local folder."""

    name: str
    configuration: str | None
    split: str
    field: str

    @property
    def title(self) -> str:
        """For reports: without the folders above a local one."""
        name = Path(self.name).resolve().name if Path(self.name).is_dir() else self.name
        return f"{name}@{self.configuration}:{self.split}" if self.configuration else f"{name}:{self.split}"


def parse(text: str) -> HubName:
    """:raises TrainerError: not of the form `FORM`."""
    name, split, field, *more = [*text.removeprefix(PREFIX).split(":"), "", ""]
    name, _, configuration = name.partition("@")
    if not name or any(more):
        raise TrainerError(f"corpus {text} names no data set: write {FORM}")
    return HubName(name, configuration or None, split or SPLIT, field or TEXT_FIELD)


def stream_documents(wanted: HubName, tally: Tally) -> Iterator[str]:
    """The documents of a data set, in its order; records without a text are added to `tally`.

    For a local folder nothing goes over the network.

    :raises TrainerError: no library, no such data set, configuration, split or field, or it cannot be read.
    """
    library = _library()
    where = f"corpus {PREFIX}{wanted.name}"
    faults = (OSError, ValueError, RuntimeError, library.exceptions.DatasetsError, *_transport_errors())
    try:
        records = library.load_dataset(wanted.name, wanted.configuration, split=wanted.split, streaming=True)
        for number, record in enumerate(records, start=1):
            if number == 1 and wanted.field not in record:
                raise TrainerError(
                    f"{where} has no field {wanted.field!r}, but {', '.join(map(repr, record))}: write {FORM}"
                )
            tally.lines += 1
            text = record[wanted.field]
            if fault := text_fault(text, wanted.field):
                tally.add_broken(f"record {number} of {wanted.name} ({fault})")
            else:
                yield text
    except faults as error:
        reason = " ".join(str(error).split())[:_LONGEST_REASON]
        raise TrainerError(f"{where} cannot be read ({FORM}): {reason or type(error).__name__}") from None


def _library() -> ModuleType:
    try:
        import datasets
    except ImportError:
        raise TrainerError(
            f"a corpus {PREFIX}... needs the library datasets: pip install 'training-profiler[hub]'"
        ) from None
    # it reports a broken file by itself, before the error that we report
    logging.getLogger("datasets.packaged_modules").setLevel(logging.CRITICAL)
    library: Any = datasets
    library.disable_progress_bars()
    return datasets


def _transport_errors() -> list[type[Exception]]:
    """What the library's HTTP client raises where nobody translates it: which client that is depends on the version."""
    clients = {"httpx2": "HTTPError", "httpx": "HTTPError", "aiohttp": "ClientError"}
    return [getattr(sys.modules[name], error) for name, error in clients.items() if name in sys.modules]
