"""Control flow reads codes and values, never sentences; and sentences of documents do not stack relative clauses."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from profiler.report.notices import NOTICES

ROOT = Path(__file__).resolve().parents[1]
PROSE = {"description", "explanation", "headline", "note", "reason", "sentence", "step_source", "verdict", "why"}
"""Names of variables and attributes that hold sentences."""
METHODS = {"count", "endswith", "find", "index", "partition", "rpartition", "split", "startswith"}
PATTERNS = {"findall", "finditer", "fullmatch", "match", "search", "sub"}
ALLOWED = {
    # git has no code for these
    "profiler/check/worktree/checkout.py: 'not a git repository' in why",
    "profiler/check/worktree/checkout.py: 'must be run in a work tree' in why",
    "profiler/check/worktree/checkout.py: 'dubious ownership' in why",
    # a mapping of settings
    "reference_trainer/performance/config.py: name in why",
}
"""Readers that cannot be avoided."""


def is_prose(node: ast.AST) -> bool:
    name = node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
    return name in PROSE


def readers_of_prose(source: str) -> Iterator[str]:
    """Every expression that looks into a sentence."""
    for node in ast.walk(ast.parse(source)):
        found = False
        if isinstance(node, ast.Compare):
            for operator, right in zip(node.ops, node.comparators, strict=True):
                found |= isinstance(operator, ast.In | ast.NotIn) and is_prose(right)
                literal = isinstance(right, ast.Constant) and isinstance(right.value, str) and " " in right.value
                found |= isinstance(operator, ast.Eq | ast.NotEq) and is_prose(node.left) and literal
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            found = (node.func.attr in METHODS and is_prose(node.func.value)) or (
                node.func.attr in PATTERNS and any(map(is_prose, node.args))
            )
        if found:
            yield ast.unparse(node)


@pytest.mark.parametrize(
    "source",
    [
        "if 'torch' in status.reason: pass",
        "if note.startswith('only '): pass",
        "re.search('light', measure.reason)",
        "if gate.reason == 'too few steps': pass",
        "verdict.partition(':')",
    ],
)
def test_a_reader_of_prose_is_recognized(source: str) -> None:
    assert list(readers_of_prose(source))


@pytest.mark.parametrize("source", ["if notice.code == 'only-warm-up': pass", "if reason: print(reason)"])
def test_codes_and_printing_are_not(source: str) -> None:
    assert not list(readers_of_prose(source))


def test_nothing_reads_a_sentence() -> None:
    found = {
        f"{path.relative_to(ROOT)}: {text}"
        for package in ("profiler", "reference_trainer")
        for path in sorted((ROOT / package).rglob("*.py"))
        for text in readers_of_prose(path.read_text(encoding="utf-8"))
    }
    assert not (found - ALLOWED), "\n".join(sorted(found - ALLOWED))


def notice_codes(source: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Notice" and node.args:
            code = node.args[0]
            if isinstance(code, ast.Constant) and isinstance(code.value, str):
                yield code.value


def test_every_notice_of_a_run_has_its_sentence() -> None:
    rooms = [ROOT / "profiler" / room for room in ("analyse", "diagnose", "knockout", "report", "run")]
    files = [file for room in rooms for file in room.rglob("*.py")]
    codes = {code for file in files for code in notice_codes(file.read_text(encoding="utf-8"))}
    texts = NOTICES.keys()
    assert not codes - texts, "report/notices.py has no sentence for these"


STACKED = re.compile(
    r"\b(?:(?:of|in|for|by|at|to|from|with|on) (?:which|whom)|that of|those of|as far as|where (?:that|this|it) is"
    r"|whatever|whose)\b"
)
"""Words that begin a relative clause: with two of them in a sentence, a reader has to begin again."""
RECORDS = {"log", "clinic-board"}
"""Pages that record what was tried and found, in the words of that day."""


def sentences(text: str) -> Iterator[str]:
    """The sentences of Markdown or of a docstring, without code and headings."""
    text = re.sub(r"```.*?```|:::.*?:::", "", text, flags=re.DOTALL)
    text = "\n".join(line for line in text.split("\n") if not line.startswith(("    ", "#")))
    text = re.sub(r"`[^`]*`", "X", text)
    for paragraph in re.split(r"\n\s*\n|\n(?=\s*[-*|]|\s*\d+\. )|\|", text):
        yield from (" ".join(each.split()) for each in re.split(r"(?<=[.?!:;])\s+", paragraph))


def public_docstrings(node: ast.AST) -> Iterator[str]:
    """The docstrings of a module and of its public classes, functions and methods."""
    if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
        yield ast.get_docstring(node) or ""
        for child in node.body if not isinstance(node, ast.FunctionDef) else ():
            if not getattr(child, "name", "").startswith("_"):
                yield from public_docstrings(child)


def is_stacked(sentence: str) -> bool:
    return len(STACKED.findall(sentence)) > 1


@pytest.mark.parametrize(
    ("sentence", "expected"),
    [
        ("A kind of which they have too much gives some to kinds of which they have too little.", True),
        ("A kind with too much time gives some to kinds of which they have too little.", False),
    ],
)
def test_two_relative_clauses_are_stacked(sentence: str, expected: bool) -> None:
    assert is_stacked(sentence) is expected


def test_no_page_stacks_relative_clauses() -> None:
    pages = [*sorted((ROOT / "docs").glob("*.md")), *(ROOT / f"{name}.md" for name in ("README", "ARCHITECTURE"))]
    found = [
        f"{page.name}: {sentence}"
        for page in pages
        if page.stem not in RECORDS
        for sentence in sentences(page.read_text(encoding="utf-8"))
        if is_stacked(sentence)
    ]
    assert not found, "\n".join(found)


def test_no_public_docstring_stacks_relative_clauses() -> None:
    found = [
        f"{path.relative_to(ROOT)}: {sentence}"
        for path in sorted((ROOT / "profiler").rglob("*.py"))
        for text in public_docstrings(ast.parse(path.read_text(encoding="utf-8")))
        for sentence in sentences(text)
        if is_stacked(sentence)
    ]
    assert not found, "\n".join(found)
