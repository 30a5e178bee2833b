"""The report on ways of tokenization: which is fastest here and by what factor, and a table of all."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from profiler.analyse.model.comparison import Ratio
from profiler.core import units
from profiler.report.blocks import Callout, Cell, Column, Report, Section, Table
from profiler.report.table import ratio_cell, ratio_text

_COLUMNS = (
    Column("Way"),
    Column("Threads", number=True),
    Column("Samples/s", number=True),
    Column("Tokens/s", number=True),
    Column("ms a sample", number=True),
    Column("Ratio", number=True),
)


def tokenization_report(document: Mapping[str, Any]) -> Report:
    """A report of a document of schema `tokenization/2`."""
    subtitle = (
        f"{document['corpus']} · {document['vocabulary']:,} tokens · chunks of {document['samples_per_chunk']:,} "
        f"samples of {document['sample_chars']:,} characters · {document['cores']} cores"
    )
    blocks = (Callout(sentence(document), "verdict"), _table(document))
    return Report("Tokenization", subtitle, (Section("tokenization", "Tokenization", blocks, blocks),))


def sentence(document: Mapping[str, Any]) -> str:
    """Which way is fastest, and where that one tokenizes nothing, which of the others."""
    ways = document["ways"]
    best = max(ways, key=_ratio)
    if not best["measured"]["ratio"]["different"]:
        return f"No way is seen to be faster here than {document['baseline']}."
    text = f"Fastest here: {_named(best)}, {_factor(best)} {document['baseline']} ({_interval(best)})"
    if best["tokenizes"]:
        return f"{text}."
    working = max((way for way in ways if way["tokenizes"]), key=_ratio)
    if not working["measured"]["ratio"]["different"]:
        return f"{text}; of the ways that tokenize, none is seen to be faster than {document['baseline']}."
    return f"{text}; of the ways that tokenize, {_named(working)}, {_factor(working)} ({_interval(working)})."


def _named(way: Mapping[str, Any]) -> str:
    return f"{way['name']} with {way['threads']} threads" if way["threads"] > 1 else str(way["name"])


def _ratio(way: Mapping[str, Any]) -> float:
    return float(way["measured"]["ratio"]["value"])


def _factor(way: Mapping[str, Any]) -> str:
    return ratio_text(_ratio(way))


def _interval(way: Mapping[str, Any]) -> str:
    ratio = way["measured"]["ratio"]
    return f"95% interval {ratio_text(ratio['low'])} to {ratio_text(ratio['high'])}"


def _table(document: Mapping[str, Any]) -> Table:
    baseline = document["baseline"]
    libraries = dict.fromkeys(way["library"] for way in document["ways"])
    return Table(
        f"Medians and ranges over {document['rounds']} interleaved rounds; ratios over {baseline} with 95% intervals",
        _COLUMNS,
        tuple(_row(way, baseline) for way in document["ways"]),
        " ".join(f"{library}: {_how(document, library)}." for library in libraries),
    )


def _how(document: Mapping[str, Any], library: str) -> str:
    return ", ".join(f"{way['name']} ({way['how']})" for way in document["ways"] if way["library"] == library)


def _row(way: Mapping[str, Any], baseline: str) -> tuple[Cell, ...]:
    measured = way["measured"]
    rate, tokens, each = (measured[key] for key in ("samples_per_s", "tokens_per_s", "ms_per_sample"))
    return (
        Cell(way["name"]),
        Cell(str(way["threads"]), sort=way["threads"]),
        Cell(_rate(rate["median"]), sort=rate["median"], note=f"{_rate(rate['low'])} to {_rate(rate['high'])}"),
        Cell(_rate(tokens["median"]), sort=tokens["median"]),
        Cell(units.significant(each["median"]), sort=each["median"]),
        Cell("baseline", sort=1.0) if way["name"] == baseline else _over(measured["ratio"]),
    )


def _over(ratio: Mapping[str, Any]) -> Cell:
    return ratio_cell(
        Ratio("samples_per_s", ratio["value"], ratio["low"], ratio["high"], ratio["n"], ratio["different"])
    )


def _rate(value: float) -> str:
    return units.rate(value, "").strip()
