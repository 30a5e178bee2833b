"""Says what a run keeps, and masks secrets in commands and source lines: the values of names that say key or password.

A name is split into words at `-`, `_`, `.` and changes of case: `--api-key`, `logger.token`, `apiKey`. It says a secret
where one of its words does. `tokens`, `tokenizer`, `keys` and `author` are other words.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from profiler.core.facts import program, starts_programs

MASK: Final = "***"
"""Stands for a secret value; as a word of its own, for the arguments that were left out."""
_WORDS: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_SECRET: Final = re.compile(
    r"\w*key|\w*token|\w*secrets?|\w*passw\w*|passphrases?|pwd|o?auth|authorization|authentication|\w*credentials?|"
    r"creds?|bearer|jwt|sig|signature"
)
_PHRASE: Final = re.compile(r"(?:api|access|private) ?keys|\w pass$")
"""`keys` alone are usually those of a dictionary, and `pass` alone is one over the data."""
_QUANTITIES: Final = frozenset({
    "batch", "count", "dim", "dims", "dropout", "heads", "hidden", "id", "index", "interval", "layers", "len", "length",
    "limit", "max", "min", "n", "num", "number", "per", "prob", "rate", "ratio", "scale", "seed", "size", "steps",
    "total", "weight", "width",
})  # fmt: skip
"""With such a word in its name, a number is an amount: `--num-key-value-heads 8`, `--max-token 4096`."""
_NUMBER: Final = re.compile(r"[+-]?[\d.,_]*\d(e[+-]?\d+)?[kmgb]?", re.IGNORECASE)
_SWITCHES: Final = frozenset({"", "true", "false", "yes", "no", "on", "off", "none", "null"})
"""Values that turn something on or off."""

_NAME: Final = r"(?<!\w)(?P<name>[a-z_][\w.-]{0,100}+)"
"""Its length is limited and it is not given back, since a search would else take quadratic time."""
_IN_TEXT: Final = re.compile(
    rf"{_NAME}\\*[\"']?\s*[=:]\s*\\*|(?<![\w-])--?(?P<option>[a-z][\w.-]{{0,100}}+)\s+(?!-)", re.IGNORECASE
)
"""In a text of several words: `TOKEN=X`, `"token": "X"`, `Authorization: Bearer X`, `--token X`, `?token=X&page=2`."""
_IN_SOURCE: Final = re.compile(
    rf"{_NAME}(?:[\"']?\]?\s*(?::[^=\"',]{{1,80}})?=\s*|[\"']?\s*:\s*|[\"']\s*,\s*|\s*\(\s*)[a-z]{{0,2}}(?=[\"'])",
    re.IGNORECASE,
)
"""In Python: `token = "X"`, `token: str = "X"`, `f(token="X")`, `{"token": "X"}`, `setdefault("TOKEN", "X")`."""
_VALUE: Final = re.compile(
    r"(?P<quote>\"\"\"|'''|\"|')(?P<quoted>(?:\\.|(?!(?P=quote)).)*)|"
    r"(?P<plain>(?:(?:apikey|basic|bearer|digest|key|negotiate|oauth|token)\s+)?[^\s;&|]+)",
    re.IGNORECASE | re.DOTALL,
)
_WORD: Final = re.compile(r"(?P<before>[-+~]*(?P<name>[a-z_][\w.\-/@\[\]]*)=)(?P<value>.+)", re.IGNORECASE | re.DOTALL)
"""A word that is one assignment: `--api-key=X`, `+logger.token=X`."""
_USER: Final = re.compile(r"(?<=://)[^/\s?#\"']+(?=@)")
"""User and password in an address."""


@dataclass(frozen=True, slots=True)
class Privacy:
    """What a run keeps of the user's code and command, and who may read it."""

    source: bool = True
    """Keep the text of the lines that the run names."""
    arguments: bool = True
    """Keep the arguments of the program; its secrets are masked all the same."""
    shared: bool = False
    """Let the umask decide who may read the run directory; False: only its owner."""


PRIVATE: Final = Privacy()


def recorded_arguments(command: Sequence[str], *, arguments: bool = True) -> tuple[str, ...]:
    """Return a command as it is recorded: without its secrets, or without all arguments, with MASK in their place."""
    return masked(command) if arguments else _program_only(command)


def masked(command: Sequence[str]) -> tuple[str, ...]:
    """Put MASK in place of each secret value of a command. Doing it again changes nothing."""
    return _replaced(command, MASK)


def shown(command: Sequence[str]) -> str:
    """Return a command as one text for a shell, with its secrets masked."""
    return shlex.join(masked(command))


def masked_command(text: str) -> str:
    """Do the same with a command in one text, which need not be shell syntax."""
    try:
        words = tuple(shlex.split(text))
    except ValueError:
        return _in_text(_IN_TEXT, text, MASK)
    return text if words == masked(words) else shown(words)


def masked_source(line: str) -> str:
    """Put MASK in place of each literal of a secret name, and of passwords in addresses, in a line of Python."""
    return _in_text(_IN_SOURCE, line, MASK)


def masked_word(command: Sequence[str]) -> str:
    """Return the first word of a command in which MASK replaces a value, behind its option; empty: there is none."""
    for before, word, rest in zip(("", *command), command, _replaced(command, ""), strict=False):
        if word == MASK:
            return f"{before} {word}"
        if word.count(MASK) > rest.count(MASK):
            return word
    return ""


def _is_secret(name: str, value: str) -> bool:
    return _says_secret(name) and not _is_harmless(name, value)


def _says_secret(name: str) -> bool:
    words = _words(name)
    return any(map(_SECRET.fullmatch, words)) or _PHRASE.search(" ".join(words)) is not None


def _is_harmless(name: str, value: str) -> bool:
    """Whether the value of a name that says a secret is an amount or a switch."""
    is_amount = _NUMBER.fullmatch(value) and not _QUANTITIES.isdisjoint(_words(name))
    return bool(is_amount) or value.lower() in _SWITCHES


def _words(name: str) -> list[str]:
    return [word.lower() for word in _WORDS.findall(name)]


def _started(command: Sequence[str]) -> str:
    """The script or module of a command; empty where it is in a text for a shell."""
    started = program(command)
    return "" if any(map(str.isspace, started)) else started


def _program_only(command: Sequence[str]) -> tuple[str, ...]:
    """The words that start the program, and MASK for all others."""
    started = _started(command)
    kept: list[str] = []
    for word in reversed(command[: command.index(started) + 1] if started else command[:1]):
        if word in (started, command[0]) or starts_programs(word) or (word == "-m" and kept):
            kept.insert(0, word)
    return (*kept, *([MASK] if len(kept) < len(command) else []))


def _replaced(command: Sequence[str], mask: str) -> tuple[str, ...]:
    started = _started(command)
    words: list[str] = []
    before = ""
    for index, word in enumerate(command):
        if before == "-c" and not started and any(map(starts_programs, command[:index])):
            shown = "\n".join(_in_text(_IN_SOURCE, line, mask) for line in word.split("\n"))
        elif before.startswith("-") and not word.startswith("-") and word != started and _is_secret(before, word):
            shown = mask
        elif (whole := _WORD.fullmatch(word)) and _is_secret(whole["name"], whole["value"]):
            shown = whole["before"] + mask
        else:
            shown = _in_text(_IN_TEXT, word, mask)
        words.append(shown)
        before = word if "=" not in word else ""
    return tuple(words)


def _in_text(names: re.Pattern[str], text: str, mask: str) -> str:
    """A text with `mask` in place of the value of each secret name. What others have may itself contain such names."""
    text = _USER.sub(mask, text)
    parts: list[str] = []
    position = 0
    while found := names.search(text, position):
        end = found.end()
        parts.append(text[position:end])
        name = found["name"] or found.groupdict().get("option") or ""
        value = _VALUE.match(text, end) if _says_secret(name) else None
        if value and not _is_harmless(name, value["quoted"] if value["quote"] else value["plain"]):
            start, end = value.span("quoted" if value["quote"] else "plain")
            parts += [text[found.end() : start], mask]
        position = end
    return "".join((*parts, text[position:]))
