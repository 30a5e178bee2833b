"""Writes the sentences of a check: the verdict, and one sentence for each notice. No code reads them back."""

from __future__ import annotations

import string
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from profiler.analyse.model.finding import RuleText
from profiler.check.model import Change, ChangeKind, CounterLine, GateResult
from profiler.check.outputs import format as fmt
from profiler.check.places import Rise, changed_places, failing, find_rises
from profiler.core.errors import Notice
from profiler.core.metrics import counter_period, counter_unit
from profiler.core.terminal import plain
from profiler.core.units import shorten, significant
from profiler.report.text import at, capitalized, listed, plural
from profiler.run.model import Site

_MAX_MOVES: Final = 3
"""Lines that moved to another function or file and are named."""
_MAX_LENGTH: Final = 60
"""Characters of a value that is quoted."""
_MAX_FILES: Final = 3
_MAX_PACKAGES: Final = 4
_ENVIRONMENTS: Final = {
    "same": "both sides ran in your environment, as requested",
    "manager": "{program} chooses the environment",
    "nothing-to-install": "there is nothing to install: both sides ran in your environment",
    "new": "it ran in an environment of its own (made now, {path})",
    "cached": "it ran in an environment of its own (made by an earlier check, {path})",
}
Values = Mapping[str, Any]


class _Formatter(string.Formatter):
    """`str.format` with the words of `_SPECS` for a value, and `{number:round}` for '1 round', '2 rounds'."""

    def format_field(self, value: Any, spec: str) -> str:
        if spec in _SPECS:
            return _SPECS[spec](value)
        return plural(value, spec) if len(spec) > 1 and spec.replace(" ", "").isalpha() else format(value, spec)


def sentence(notice: Notice) -> str:
    """Return the sentence for a notice of a check."""
    text = _SENTENCES[notice.code]
    return _Formatter().vformat(text, (), notice.values) if isinstance(text, str) else text(notice.values)


def reasons(notices: Sequence[Notice]) -> str:
    """Return reasons on one line; empty where there is none."""
    return "; ".join(map(sentence, notices))


def warnings(result: GateResult) -> tuple[str, ...]:
    """Return all warnings, each once."""
    speed = result.throughput.warnings if result.throughput is not None else ()
    return tuple(dict.fromkeys(map(sentence, (*result.warnings, *speed))))


def causes(result: GateResult) -> tuple[str, ...]:
    """Return a sentence for each cause that appeared or grew, with what to do about it, and its line."""
    return tuple(
        f"{cause.sentence} {cause.fix}" + (f" The line reads: {cause.source}" if cause.source else "")
        for cause in result.causes
    )


def counted_cause(rule: RuleText, line: CounterLine, change: Change) -> str:
    """Return `The host waits for the device in the middle of each step at train.py:7 (hidden-sync): syncs per step rose
    from 1 to 2 there.`"""
    before, after = fmt.amounts((change.before, change.after), line.counter)
    counter = fmt.lowered(fmt.counter_title(line))
    place = at(Site(change.file, change.line, change.function)) if change.file else ""
    rose = f"{counter} {counter_period(line.counter)} rose from {before} to {after}"
    earlier = "".join(f", {sentence(reason)}" for reason in line.reasons if reason.code == "waits-earlier")
    return f"{rule.title}{place} ({rule.name}): {rose} there{earlier}."


def moved_lines(lines: Sequence[CounterLine]) -> tuple[str, ...]:
    """Return `What was counted at train.py:12 moved into to_float(), at train.py:30.` for lines that are in another
    function or file, and how many lines only moved."""
    changes = [change for line in lines for change in line.other_changes if change.kind is ChangeKind.MOVED]
    told: dict[str, None] = {}
    for each in changes:
        if (each.base_file, each.base_function) != (each.file, each.function):
            function, place = plain(each.function.rpartition(".")[2]), fmt.location(each)
            to = f"to {place}" if each.function in ("", "<module>") else f"into {function}(), at {place}"
            told[f"What was counted at {plain(each.base_file)}:{each.base_line} moved {to}."] = None
    number = len({(each.base_file, each.base_line, each.file, each.line) for each in changes})
    only_moved = f"{plural(number, 'line')} only moved; the counts there are the same."
    return (*list(told)[:_MAX_MOVES], *([only_moved] if number else []))


def times_as_much(rise: Rise) -> str:
    """Return `2 times as many operators`, `1.33 to 2 times as many operators`, of many lines."""
    low, high = (f"{factor:.3g}" for factor in rise.factors)
    return f"{low if low == high else f'{low} to {high}'} times as many {fmt.counter_noun(rise.changes[0].counter)}"


def rise_sentence(rise: Rise) -> str:
    """Return `+1 sync per step at train.py:104 (train_step, item), changed in this diff: total += loss.item()`.

    Of many lines: `12 lines of GPT.forward() and 2 more functions count 2 times as many operators: model.py:58 runs 2
    times per step, and once in the base`.
    """
    first, *others = rise.changes
    if rise.lines == 1:
        also = f", also {', '.join(map(fmt.rise, others))}" if others else ""
        return fmt.site(first, f"{', changed in this diff' * rise.is_written}{also}")
    name = plain(first.file) if first.function in ("", "<module>") else f"{plain(first.function)}()"
    functions = len({(change.file, change.function) for change in rise.changes}) - 1
    places = f"{plural(rise.lines, 'line')} of {name}"
    places += f" and {plural(functions, 'more function')}" if functions else ""
    period = counter_period(first.counter)
    runs = f": {fmt.location(first)} runs {rise.runs} times {period}, and once in the base" if rise.runs else ""
    return f"{places} count {times_as_much(rise)}{runs}"


def unwritten(result: GateResult) -> Iterator[str]:
    """Yield what many unchanged lines that count more have in common, and what the diff changed, where it wrote no line
    that counts more or takes longer."""
    rises = find_rises(failing(result), result.hunks)
    slower = result.slower_lines or ()
    if not (rises or slower) or any(each.is_written for each in rises) or any(each.is_changed for each in slower):
        return
    if rises and rises[0].lines > 1:
        yield f"{rise_sentence(rises[0])}."
    places = [f"{plain(file)}:{number}" for file, number, _ in changed_places(result.hunks)]
    if places:
        yield f"The diff changed {_shortened(places, _MAX_FILES)}."


# ---------------------------------------------------------------- reasons of the verdict on speed


def _stopped(values: Values, rounds: int, otherwise: str) -> str:
    stopped = values["stopped"]
    return f"stopped by {sentence(stopped)} after {plural(rounds, 'round')}" if stopped else otherwise


def _incomplete(values: Values) -> str:
    rounds = values["rounds"]
    why = _stopped(
        values, rounds, f"there {'was' if rounds == 1 else 'were'} only {plural(rounds, 'confirming round')}"
    )
    means = f": {_SPECS['means'](values['lines'])}" if rounds else ""
    return f"a FAIL is suspected ({listed(values['suspected'])}), but not confirmed: {why}{means}"


def _too_few(values: Values) -> str:
    usable, total, most = values["usable"], values["total"], values["max_rounds"]
    few = _stopped(values, usable, f"too few rounds: {usable}")
    lost = f" with enough blocks, of {total} measured" if usable < total else ""
    option = f" (allow more: --set max_rounds={most})" if most is not None else ""
    return f"{few}{lost}; a verdict needs at least {values['needed']} rounds{option}"


def _undecided(values: Values) -> str:
    rounds = plural(values["usable"], "round")
    early = f"{_stopped(values, values['usable'], '')}: " if values["stopped"] else ""
    edges = f"{100 * values['at_most']:g}% or less from one of {100 * values['at_least']:g}% or more"
    lines = []
    for name, slowdown, low, high in values["lines"]:
        ends = f" ({each})" if (each := fmt.interval(low, high)) else ""
        lines.append(f"{name} not measured" if slowdown is None else f"{name} {fmt.percent(slowdown)}{ends}")
    settle = ""
    if values["more"]:
        needs = (
            f"about {fmt.duration(values['more_seconds'])}" if values["more_seconds"] else "",
            f"--set max_rounds={values['max_rounds']}" if values["max_rounds"] else "",
        )
        needed = f" ({', '.join(filter(None, needs))})" if any(needs) else ""
        settle = f"; {plural(values['more'], 'more round')} would probably settle it{needed}"
    stalls = _SPECS["stalls"](values["stalls"])
    return f"{early}{rounds} do not distinguish a slow-down of {edges}: {' and '.join(lines)}{stalls}{settle}"


_OTHER_FILESYSTEM: Final = (
    "the base's files lie on another file system than the candidate's, which can change the time of reading files"
)


# ---------------------------------------------------------------- warnings and notes


def _clocks(values: Values) -> Iterator[str]:
    for clock, number in values["clocks"].items():
        yield f"{clock} in {number} of {plural(values['rounds'], 'round')}"


def _shorten(text: str | None) -> str:
    return shorten("not stated" if text is None else text, _MAX_LENGTH)


def _key_part(values: Values) -> str:
    """Return 'dtype: float32 in the base against bfloat16 (...)'."""
    why = f" ({values['why']})" if values["why"] else ""
    base, candidate = _shorten(values["base"]), _shorten(values["candidate"])
    return f"{values['part']}: {base} in the {values['where']} against {candidate}{why}"


_WORK: Final = {
    "batch_size": "the batch has {} samples",
    "accumulation": "a step takes {} batches",
    "parameter_dtype": "the parameters are {}",
    "autocast": "autocast to {} is on",
    "world_size": "{} ranks share the work",
    "steps": "{} steps were counted",
}
"""Part of the work of a step -> its sentence."""
_SCALED_WORK: Final = {
    "h2d_bytes": "the bytes of each copy to the device are",
    "flops": "the floating-point operations of each line are",
}


def _other_work(values: Values) -> str:
    """Return 'the model has 9% more parameters', 'the batch has 64 samples instead of 32'."""
    part, ends = values["part"], (values["base"], values["candidate"])
    if part == "batch_size" and all(ends):
        sizes = [str(end).split(", ") for end in ends]
        # of several loaders, those whose batches are the same say nothing
        left = [", ".join(size for size in own if size not in other) for own, other in (sizes, reversed(sizes))]
        ends = (left[0], left[1]) if all(left) else ends
    base, candidate = map(_shorten, ends)
    if part == "parameters":
        change = int(values["candidate"]) / int(values["base"]) - 1
        return f"the model has {significant(100 * abs(change), 2)}% {'more' if change > 0 else 'fewer'} parameters"
    if part == "autocast" and not values["candidate"]:
        return f"autocast to {base} is off"
    instead = f" instead of {base}" if values["base"] else ""
    return _WORK.get(part, f"{part.replace('_', ' ')} is {{}}").format(candidate) + instead


def _not_seen(values: Values) -> Iterator[str]:
    """Yield 'an evaluation or a checkpoint, of which these steps have none'."""
    if values.get("looked"):
        yield f"what occurs only after {values['looked']:,} steps"
    elif values["missing"]:
        names = (f"{'an' if name[0] in 'aeiou' else 'a'} {name}" for name in values["missing"])
        yield f"{' or '.join(names)}, of which these steps have none"
    if values["workers"]:
        yield f"the work of {plural(values['workers'], 'loader worker')}"
    if lines := values["lines"]:
        number = plural(len(lines), "changed statement")
        why = "did not run, or only call" if len(lines) > 1 else "did not run, or only calls"
        yield f"{number} that {why} others ({_shortened(lines, _MAX_FILES)})"


def _per_sample(counts: tuple[str, float, float]) -> str:
    """Return '0.0312 and 0.0156 syncs'."""
    counter, *values = counts
    before, after = (significant(value) for value in values)
    unit = " B of" if counter_unit(counter) else ""
    return f"{before} and {after}{unit} {fmt.counter_noun(counter)}"


def _shortened(names: Sequence[str], limit: int) -> str:
    """Return the first names, and how many more there are."""
    return ", ".join(names[:limit]) + (f" and {len(names) - limit} more" if len(names) > limit else "")


_SPECS: Final[Mapping[str, Callable[[Any], str]]] = {
    "percent": fmt.percent,
    "slower": lambda change: f"{fmt.size(change)} {'slower' if change >= 0 else 'faster'}",
    "means": lambda lines: "; ".join(f"{line} {fmt.percent(mean)}" for line, mean in lines),
    "stalls": lambda added: (
        "" if added is None else f"; rare, long stalls of the candidate contribute {fmt.percent(added)} to it"
    ),
    "was": lambda number: "was" if number == 1 else "were",
    "one of": lambda cores: "the only core" if cores == 1 else f"one of {cores or 'the'} cores",
    "listed": listed,
    "few": lambda names: _shortened([*map(str, names)], _MAX_FILES),
    "versions": lambda packages: _shortened([f"{name} {a} there, {b} here" for name, a, b in packages], _MAX_PACKAGES),
    "s": lambda names: "s" * (len(names) > 1),
    "them": lambda names: "it" if len(names) == 1 else "them",
}
"""What a template may have after the colon -> how it writes the value."""
_SENTENCES: Final[Mapping[str, str | Callable[[Values], str]]] = {
    # why the rounds ended
    "interrupted": "an interrupt",
    "time-limit": "the time limit of {seconds:g} s",
    # reasons of the verdict on speed
    "slowdown-confirmed": (
        "confirmed by {rounds:round} with the programs started in the other order: {lines:means}{stalls:stalls}"
    ),
    "slowdown-not-confirmed": (
        "a FAIL is suspected ({suspected:listed}), but {rounds:confirming round} did not confirm it: {lines:means}"
    ),
    "confirmation-incomplete": _incomplete,
    "too-few-rounds": _too_few,
    "undecided": _undecided,
    "other-filesystem": lambda v: (
        f"{_OTHER_FILESYSTEM}; otherwise it would be a FAIL, {sentence(v['otherwise'])}"
        if v.get("otherwise")
        else f"{capitalized(_OTHER_FILESYSTEM)}."
    ),
    # diagnostics of the rounds
    "few-rounds": "Only {rounds:round} {rounds:was} usable: their variation is poorly known.",
    "lost-rounds": "{lost} of {rounds:round} had too few blocks of both sides, and {lost:was} not used.",
    "few-pairs": "The median round had only {pairs:pair} of blocks: a median of so few is unreliable.",
    "few-steps": "Only {steps} steps of each side were measured: a stall in every tenth step can be missed.",
    "tokens-missing": (
        "The {side} does not report the tokens of a step: the time per step is compared, whatever the work in each "
        "step."
    ),
    "tokens-differ": (
        "A step of the candidate has {ratio:.2f} times the base's tokens: the time per token is compared."
    ),
    "drift": (
        "The slow-down changed by {change:percent} from the first round to the last: there is no single slow-down."
    ),
    "odd-round": "Round {round} alone measured {slowdown:percent}, the others {others:percent} on average.",
    "rare-stalls": (
        "The candidate has rare, long stalls, and the result depends on a few of them: counted in full they add "
        "{added:percent}."
    ),
    "rare-steps": (
        "Steps that are rare and long may cost the candidate more: {slowdown:percent} of the time of all steps, which "
        "{rounds:round} do not confirm."
    ),
    "start-order": (
        "The candidate is {difference:slower} when its program is started second: the start order matters, and rounds "
        "of both orders cancel it only on average."
    ),
    "block-order": (
        "A block is {difference:slower} when it is the second of its pair: one side's block affects the other side's."
    ),
    "unsteady-speed": "The base's own steps took {ratio:.1f} times as long in round {slow} as in round {fast}.",
    "steal": "Other virtual machines took {share:.0%} of the cores' time (steal).",
    "load": "Other programs were running: on average {threads:.1f} of their threads wanted {cores:one of}.",
    "throttled": lambda v: f"Clocks were throttled: {', '.join(_clocks(v))}.",
    # warnings about what was counted
    "short-program": (
        "The program ended after {steps} of {wanted:step} to count, so what it does only now and then may be missing. "
        "Let it take more steps, or count fewer (`steps`)."
    ),
    "batches-as-steps": (
        "No optimizer stepped while it was measured, so batches count as steps: if they belong to a validation before "
        "the training, mark the training's steps with profiler.step(), or validate later."
    ),
    "budget-warning": lambda v: f"{capitalized(fmt.over_budget(v['counter'], v['amount'], v['budget']))}.",
    "other-command": "The baseline was counted with another command: {command}",
    "former-counter": (
        "The baseline counts would_sync, which is not compared any more: count exactly with --virtual-cuda or --count."
    ),
    "sides-differ": lambda v: f"The sides differ in {_key_part(v)}.",
    "key-differs": _key_part,
    "work-differs": _other_work,
    "work-scaled": lambda v: (
        f"{_SCALED_WORK[v['counter']]} {v['factor']:.4g} times as many as before, as with another batch size or other "
        "data"
    ),
    "per-sample": lambda v: f"Per sample, before and now: {listed(map(_per_sample, v['counters']))}.",
    "script-renamed": "The baseline was counted when the script was called {former}, which is gone.",
    # reasons of a counter's state
    "ignored": "ignored",
    "not-limited": "has no limit, so it cannot fail the check",
    "estimate": "listed only: it is not known which tensors would be on a GPU; --virtual-cuda and --count tell",
    "no-worker-counts": "the {side} counted no loader workers",
    "no-device": "the {side} ran without a device, where it is not counted",
    "above-budget": lambda v: f"above its budget of {fmt.amount(v['amount'], v['counter'])}",
    "above-warning": lambda v: f"above {fmt.amount(v['amount'], v['counter'])}, from which on its budget warns",
    "memory-in-bytes": "the base does not count memory in blocks of 512 B: store the new count with --update",
    "on-one-side": "only one side has any",
    "how-many": "listed only: it may depend on the losses",
    "other-checkpoints": "the sides made checkpoints at different lines",
    "varies": "varies in the baseline: {low:g} to {high:g}",
    "lines-rose": "{risen:.4g} more at these lines, for which fewer elsewhere does not pay",
    "waits-earlier": lambda v: f"{fmt.STAGES[v['now']]}, and {fmt.STAGES[v['before']]} in the base",
    "fewer": "fewer",
    "fewer-than-baseline": "fewer: store the new count with --update",
    "within-limit": "more, within its limit",
    "some-processes-above": "above the limit in {above} of {processes} processes: it varies",
    "other-step-count": "counted over {after:step}, in the base over {before}",
    "rare-events": ("counted over {after:step}, in the base over {before}: rare events need the same number of steps"),
    "compared-to": "against {name}",
    # notes on another revision
    "requirements-differ": lambda v: (
        f"{v['rev']} has other requirements ({_shortened(v['files'], _MAX_FILES)}): "
        f"{_ENVIRONMENTS[v['environment']].format(**v)}"
    ),
    "package-versions-differ": "versions of packages differ: {packages:versions}",
    "submodule-missing": (
        "submodule {name} is empty there: {commit} is not in your checkout (git submodule update --init {name})"
    ),
    "submodule-incomplete": "submodule {name} is incomplete there: {error}",
    "installed-copy": (
        "{name} was installed as a copy of {folder}, so both sides import the same code from it; pip install -e lets "
        "each import its own"
    ),
    # notes
    "limits-unused": "The limit{names:s} for {names:listed} had no effect: this run did not count {names:them}.",
    "budgets-unused": "The budget{names:s} for {names:listed} had no effect: this run did not count {names:them}.",
    "ignored-unused": "Ignoring {names:listed} changed nothing: this run did not count {names:them}.",
    "times-not-compared": (
        "The runs were recorded at different times, so their speed is not compared; --against REV or two "
        "commands compare speed."
    ),
    "one-process-a-side": (
        "With one process per side, a counter that varies by itself cannot be distinguished from one that changed."
    ),
    "baseline-too": "Counters are also compared with {file}; for each counter the worse result counts.",
    "baseline-not-used": (
        "{baseline}, the baseline that {file} names, was not used: two sides are compared to each other."
    ),
    "not-seen": lambda v: f"Not seen: {'; '.join(_not_seen(v))}.",
    "text": "{text}",
    "damaged-history": (
        "{path}: {total:damaged line} left out ({lines:few}): a check was killed while it wrote, or somebody edited it"
    ),
    "history-method": (
        "Counters are exact. A change of a time needs at least {results} results on both sides and a rank test with "
        "p <= {alpha:g}: without a real change it reports one in 1 of 500 series, and more often if neighbouring "
        "results are correlated (simulated, 40 results: 1 of 70 at a correlation of 0.3, 1 of 15 at 0.6)."
    ),
}
