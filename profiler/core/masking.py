"""Says what a run keeps, and masks secrets in commands and source lines: the values of names that say key or password.

A name is split into words at `-`, `_`, `.` and changes of case: `--api-key`, `logger.token`, `apiKey`. It says a secret
where one of its words does. `tokens`, `tokenizer`, `keys` and `author` are other words.
"""

from __future__ import annotations

import re
import shlex
import string
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from profiler.core.facts import program, starts_programs

MASK: Final = "***"
"""Stands for a secret value; as a word of its own, for the arguments that were left out."""
_WORDS: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_SECRET: Final = re.compile(
    r"\w*key|\w*token|\w*secrets?|\w*passw\w*|passphrases?|pwd|o?auth|authorization|authentication|\w*credentials?|"
    r"creds?|bearer|jwt|sig|signature|pw|cookies?|webhooks?"
)
_PHRASE: Final = re.compile(r"(?:api|access|private) ?(?:keys|tokens)|\w pass$")
_ACCESS: Final = re.compile(r"(?:api|access|private) (?:key|token)")
"""`keys` and `tokens` alone are usually those of data, and `pass` alone is one over the data."""
_QUANTITIES: Final = frozenset({
    "batch", "count", "dim", "dims", "dropout", "heads", "hidden", "id", "index", "interval", "layers", "len", "length",
    "limit", "max", "min", "n", "num", "number", "per", "prob", "rate", "ratio", "scale", "seed", "size", "steps",
    "total", "weight", "width",
})  # fmt: skip
"""With such a word in its name, a number is an amount: `--num-key-value-heads 8`, `--max-token 4096`."""
_NUMBER: Final = re.compile(r"[+-]?[\d.,_]*\d(e[+-]?\d+)?[kmgb]?", re.IGNORECASE)
_OF_DATA: Final = frozenset({
    "audio", "begin", "best", "bos", "cache", "caption", "checkpoint", "class", "cls", "column", "data", "dataset",
    "dict", "ema", "embedding", "encoder", "end", "eos", "feature", "file", "frame", "frames", "group", "hash", "image",
    "init", "initializer", "input", "instance", "join", "label", "lang", "level", "loss", "mask", "metric",
    "mixer", "mode", "model", "modifier", "monitor", "name", "norm", "order", "output", "pad", "padding", "path",
    "placeholder", "policy", "pool", "pooling", "prefix", "primary", "prng", "query", "random", "resume", "rng",
    "sample", "score", "selection", "sep", "shard", "sort", "special", "split", "src", "start", "state", "stop",
    "student", "suffix", "target", "teacher", "text", "tgt", "type", "unk", "video", "weights",
})  # fmt: skip
"""With such a word, a `key` or `token` may be one of the data: `--sort-key length`, `--bos_token '<s>'`."""
_MAY_BE_DATA: Final = frozenset({"key", "token", "signature"})
_PLAIN: Final = re.compile(
    r"</?s>|<\|?[a-z]+(?:[_-][a-z]+)*(?:_?\d{1,3})?\|?>|\[[A-Z]{1,12}\]|"
    r"[~./]{0,3}(?:(?:[A-Z]?[a-z]{1,12}|[A-Z]{1,4}|\d{1,4})(?:[._/:;,-]{1,2}|$))+"
)
"""Special tokens of a vocabulary, and words, small numbers and paths of them. What a service gives out is none of
these: it mixes digits and cases."""
_SWITCHES: Final = frozenset({"", "true", "false", "yes", "no", "on", "off", "none", "null"})
"""Values that turn something on or off."""

_NAME: Final = r"(?<!\w)(?P<name>[^\W\d][\w.-]{0,100}+)"
"""Its length is limited and it is not given back, since a search would else take quadratic time."""
_IN_TEXT: Final = re.compile(
    rf"{_NAME}\\*[\"']?\]?\s*\+?[=:]\s*\\*|(?<![\w-])--?(?P<option>[a-z][\w.-]{{0,100}}+)\s+(?!-)", re.IGNORECASE
)
"""In a text of several words: `TOKEN=X`, `"token": "X"`, `Authorization: Bearer X`, `--token X`, `?token=X&page=2`."""
_IN_SOURCE: Final = re.compile(
    rf"{_NAME}(?:[\"']?\]?\s*(?::[^=\"',]{{1,80}})?=\s*|[\"']?\s*:\s*|[\"']\s*,\s*|\s*\(\s*|"
    rf"[\"']?[\])]?\s+or\s+)[\s(\[]*[a-z]{{0,2}}(?=[\"'])",
    re.IGNORECASE,
)
"""In Python: `token = "X"`, `token: str = "X"`, `f(token="X")`, `{"token": "X"}`, `setdefault("TOKEN", "X")`,
`token or "X"`."""
_QUOTED: Final = r"(?P<quote>\"\"\"|'''|\"|')(?P<quoted>(?:\\.|(?!(?P=quote)).)*)"
_LITERAL: Final = re.compile(rf"{_QUOTED}(?P=quote)?", re.DOTALL)
_IN_LITERAL: Final = re.compile(rf"{_NAME}=(?=[^\s={{%])", re.IGNORECASE)
"""In a literal of Python: `"host=h password=X"`, but neither `f"token={x}"` nor `"token=" + x`."""
_TO_NEXT: Final = re.compile(r"\s*(?P<comma>,?)\+?\s*[a-z]{0,2}(?=[\"'])", re.IGNORECASE)
"""Between parts of a literal, and of a tuple: `"Bearer " + "X"`, `("me", "X")`."""
_VALUE: Final = re.compile(
    rf"{_QUOTED}|(?P<plain>[|>][-+]?(?:\n[ \t]+[^\n]*)+|"
    r"(?:\$?[\[({][^\])}]*|`[^`]*)?(?:(?:apikey|basic|bearer|digest|key|negotiate|oauth|token)\s+)?(?:\\.|[^\s;&|])+)",
    re.IGNORECASE | re.DOTALL,
)
"""A quoted value, a block of YAML, a list up to its end, or a word."""
_REST: Final = re.compile(r"(?<=[\"'])[\w\"'$](?:\\.|[^\s;&|])*")
"""What follows a quoted part of a word of a shell: `'a;'b`."""
_ITEM_END: Final = re.compile(r"[,}\])]")
_WORD: Final = re.compile(
    r"(?P<before>[-+~]*(?P<name>[^\W\d][\w.\-/@\[\]\"']*)\+?=)(?P<value>.+)", re.IGNORECASE | re.DOTALL
)
"""A word that is one assignment: `--api-key=X`, `+logger.token=X`."""
_SETTING: Final = re.compile(r"\w+(?:\.\w+)+")
"""A name whose value is the next word: `MODEL.API_KEY X`."""
_SHELL: Final = re.compile(r"-[a-z]*c")
"""The option of a shell, before its program."""
_BY_FORM: Final = re.compile(
    r"(?<=://)(?:[^/\s?#\"':@]*:(?!\d+[/?#])[^\s\"']{1,200}|[^/\s?#\"']+)(?=@)|"
    r"(?<=hooks\.slack\.com/services/)[\w/]+|(?<=/api/webhooks/)[\w/-]+|(?<![A-Za-z\d])(?:(?:AKIA|ASIA)[A-Z\d]{16}|"
    r"(?:hf_|gh[opsur]_)[A-Za-z\d]{30,}|(?:github_pat_|glpat-|sk-|xox[abeprs]-|AIza|eyJ[\w-]{10,200}\.eyJ)"
    r"(?=[\w.-]{0,60}[A-Z])[\w.-]{20,})"
)
"""What is secret without a name: user and password in an address, and tokens with the marks of services that give them
out (AWS, Hugging Face, GitHub, GitLab, OpenAI and others, Slack, Google, JSON web tokens)."""
_LOGIN: Final = re.compile(r"(?<![\w./:+-])[\w.+-]{1,100}+:[^\s:@/\"']+(?=@(?!sha256)[a-z])")
"""User and password before a host without `://`. In Python it would be a slice or an entry of a dictionary."""


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


def shown_command(command: Sequence[str]) -> str:
    """Return a command as one text for a shell, with its secrets masked."""
    return shlex.join(masked(command))


def masked_command(text: str) -> str:
    """Do the same with a command in one text, which need not be shell syntax."""
    try:
        words = tuple(shlex.split(text))
    except ValueError:
        return _in_text(_IN_TEXT, text, MASK)
    return text if words == masked(words) else shown_command(words)


def masked_source(line: str) -> str:
    """Put MASK in place of each literal of a secret name, and of passwords in addresses, in a line of Python."""
    return _in_source(line, MASK)


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
    """Tell whether the value of a name that says a secret is an amount, a switch, or a plain word about data."""
    is_amount = _NUMBER.fullmatch(value) and not _QUANTITIES.isdisjoint(_words(name))
    return bool(is_amount) or value.lower() in _SWITCHES or (_is_of_data(name) and _PLAIN.fullmatch(value) is not None)


def _is_of_data(name: str) -> bool:
    """Tell whether the key or token that a name says may be one of the data. What is before a dot names its owner."""
    words = _words(name.rpartition(".")[2])
    says = set(filter(_SECRET.fullmatch, words))
    return says <= _MAY_BE_DATA and not _OF_DATA.isdisjoint(words) and not _ACCESS.search(" ".join(words))


def _words(name: str) -> list[str]:
    return [word.lower() for word in _WORDS.findall(name)]


def _started(command: Sequence[str]) -> str:
    """Return the script or module that is a word of a command; empty where it is in a text for a shell."""
    started = program(command)
    return "" if any(map(str.isspace, started)) or started not in command else started


def _program_only(command: Sequence[str]) -> tuple[str, ...]:
    """Return the words that start the program, and MASK for all others."""
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
            shown = "\n".join(_in_source(line, mask) for line in word.split("\n"))
        elif _SHELL.fullmatch(before):
            shown = _in_text(_IN_TEXT, word, mask)
        elif _is_value(before, word) and word != started and _is_secret(before, word):
            shown = mask
        elif (whole := _WORD.fullmatch(word)) and _is_secret(whole["name"], whole["value"]):
            shown = whole["before"] + mask
        else:
            shown = _in_text(_IN_TEXT, word, mask)
        words.append(shown)
        if shown != mask or not before.endswith(("keys", "tokens", "secrets")):  # `--api-keys X Y`
            before = word if "=" not in word else ""
    return tuple(words)


def _is_value(before: str, word: str) -> bool:
    return not word.startswith("-") and (before.startswith("-") or _SETTING.fullmatch(before) is not None)


def _in_source(line: str, mask: str) -> str:
    def shown(literal: re.Match[str]) -> str:
        return (
            literal["quote"]
            + _in_text(_IN_LITERAL, literal["quoted"], mask)
            + line[literal.end("quoted") : literal.end()]
        )

    line = _in_text(_IN_SOURCE, line, mask)
    return _LITERAL.sub(shown, line)


def _in_text(names: re.Pattern[str], text: str, mask: str) -> str:
    """Return a text with `mask` in place of the value of each secret name. What others have may itself contain such
    names."""
    text = _BY_FORM.sub(mask, text)
    if names is _IN_TEXT:
        text = _LOGIN.sub(mask, text)
    parts: list[str] = []
    position = 0
    while found := names.search(text, position):
        end = found.end()
        name = found["name"] or found.groupdict().get("option") or ""
        parts.append(text[position:end])
        if _says_secret(name):
            masking = _without_literals if names is _IN_SOURCE else _without_value
            shown, end = masking(name, text, found, mask)
            parts.append(shown)
        position = end
    return "".join((*parts, text[position:]))


def _without_value(name: str, text: str, found: re.Match[str], mask: str) -> tuple[str, int]:
    """Return what stands for the value after a name in a text, and where it ends."""
    value = _VALUE.match(text, found.end())
    if value is None or _is_harmless(name, value["quoted"] if value["quote"] else _ITEM_END.split(value["plain"])[0]):
        return "", found.end()
    if not value["quote"]:
        return mask, value.end()
    end = value.end() + len(value["quote"])
    rest = _REST.match(text, end)
    return f"{value['quote']}{mask}{text[value.end() : end]}", rest.end() if rest else end


def _without_literals(name: str, text: str, found: re.Match[str], mask: str) -> tuple[str, int]:
    """Return what stands for the literals after a name in a line of Python, and where they end."""
    shown, end = "", found.end()
    in_brackets = found[0].rstrip(string.ascii_letters).endswith(("(", "["))
    while (value := _LITERAL.match(text, end)) and not _is_harmless(name, value["quoted"]):
        shown, end = f"{shown}{value['quote']}{mask}{text[value.end('quoted') : value.end()]}", value.end()
        between = _TO_NEXT.match(text, end)
        if not between or (between["comma"] and not in_brackets):
            break
        shown, end = shown + between[0], between.end()
    return shown, end
