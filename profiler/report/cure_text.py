"""Words the cure of a finding: advice for a line or a library, the templates of its rule, and the changed line."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Mapping, Sequence
from string import Formatter
from typing import Any, Final

from profiler.analyse.model.finding import Finding, Place
from profiler.analyse.model.ledger import Owner, Period
from profiler.core.syntax import called_functions, parsed_line
from profiler.core.units import nth, ratio, seconds, share, significant, size
from profiler.diagnose.model import CODE_OF, MOST, RUNS_TRAINING
from profiler.report import text as words
from profiler.report.category_text import CODE_TITLES, STAGES
from profiler.report.rank_text import SPENT, other_ranks


def without_inner(function: str) -> str:
    """Return the name of the function that defines this one, if it is an inner one."""
    return function.partition(".<locals>")[0]


def cure_of_place(finding: Finding) -> str:
    """Choose the advice for the line that takes most of a finding's time; empty where there is none."""
    if finding.known_cure:
        return finding.known_cure
    line = finding.cure_site
    hook = next((each for each in finding.places if line is not None and each.registered_at == line), None)
    if hook is not None and finding.has_cure and hook.package not in RUNS_TRAINING:
        return _OF_HOOKS.format(package=hook.package)
    first = finding.places[0] if finding.places else None
    if first is None:
        return ""
    alike = sum(place.share for place in finding.places if place.package == first.package)
    if (alike if first.package else first.share) <= MOST * finding.share:
        return ""
    # what a library does before the steps, such as compiling, it does once
    is_library = finding.rule.name == CODE_OF[Owner.LIBRARY] and finding.period not in (Period.BEFORE, Period.AFTER)
    # within a forward pass, functions of other names prepare what layers use, or losses
    is_work = finding.rule.name in _WORK and bool(first.inside) and not _OF_LAYERS.search(first.inside)
    if not first.package and finding.has_cure and finding.values.get("runs_steps"):
        return _OF_RUNNER
    if not first.package or not (finding.has_cure or is_library or is_work):
        return ""
    if first.package not in RUNS_TRAINING:
        return _library_cure(first, runs_steps=bool(finding.values.get("runs_steps")))
    if _AROUND_STEPS.search(first.inside):
        return _OF_TRAINER.format(package=first.package)
    return _OF_RUNNER if finding.has_cure and finding.values.get("runs_steps") else ""


def cure_of_rest(finding: Finding) -> str:
    """Choose the advice for time that no rule explains; empty where there is none."""
    if finding.rule.name == CODE_OF[Owner.IMPORT] and finding.values["package"] != "torch":
        return _OF_IMPORTS
    cure = cure_of_place(finding) or str(finding.values.get("part_cure", ""))
    if cure or not finding.of_steps or finding.rule.name not in CODE_TITLES:
        return cure
    return _OF_ITEMS if finding.period is Period.AFTER else f"{_OF_ITEMS} {_OF_PREPARATION}"


_WORK: Final = ("compute", "framework", "python")
"""Names of findings about work of any kind."""
_OF_LAYERS: Final = re.compile(r"(?i)forward|attention|conv|embed|layer|norm|modul|model|backbone|net\b|\bnn\.")
"""Functions that compute a model."""


_AROUND_STEPS: Final = re.compile(
    r"(?i)\b(accelerator|callbacks?|connectors?|loggers?|loops|progress|trainer)(_\w+)?\."
)
"""Their modules that work around the steps; others hold models, layers and datasets."""


_OF_HOOKS: Final = (
    "Most of it is in hooks of {package}, which the program registers. Register them only where they are needed, or "
    "look for an option by which they work less often."
)
_OF_TRAINER: Final = (
    "Most of it is code of {package} around your steps. Log less often, and leave out callbacks, loggers and progress "
    "bars that you do not need."
)


_OF_RUNNER: Final = (
    "See which callbacks, hooks and options of this training do this in each step, and leave out what you do not need."
)


def _library_cure(place: Place, *, runs_steps: bool) -> str:
    """Advise about time in an unknown library; `runs_steps`: the line runs the whole training."""
    if runs_steps:
        inside = f"{without_inner(place.inside)}()" if place.inside else f"code of {place.package}"
        return (
            f"Look for an option of {place.package} by which it does less of this, or for a newer version. Most of the "
            f"time is in {inside}, not in the program."
        )
    if place.package == "numpy":
        return _OF_NUMPY
    name = place.inside.rpartition(".")[2].strip("_")
    called = next((each for each in called_functions(place.site.source) if each.rpartition(".")[2] == name), "")
    what = f"what {called}() returns" if called else "its result"
    own = f"Most of the time is in code of {place.package}, not of the program."
    option = f"look for an option of {place.package} or a newer version that makes it faster"
    tree = parsed_line(place.site.source)
    if tree is not None and all(isinstance(each, ast.Expr) for each in tree.body):  # the program uses no result
        return f"Do it less often or with less data, or {option}. {own}"
    return f"If {what} depends only on the arguments, compute it once and keep it. Else {option}. {own}"


_OF_NUMPY: Final = (
    "If this line runs for each item of a loop, call NumPy once on whole arrays instead: a call takes microseconds "
    "however small its arrays are. Compute what stays the same once, and keep it."
)
_OF_IMPORTS: Final = (
    "Import what is used only at times within the function that uses it, and of a package only the parts that are "
    "used. `python -X importtime` tells what each import takes."
)
_OF_ITEMS: Final = (
    "Look for work that is repeated for each item, such as a search in a list, a sum, or a set that is built again."
)
_OF_PREPARATION: Final = "If the result is the same in each run, store it in a file and load it from there."


# ---------------------------------------------------------------- templates


_HARDLY: Final = 0.05
"""Number of free cores below which a figure tells nothing."""
_FORMATS: Final[Mapping[str, Callable[[Any], str]]] = {
    "time": seconds,
    "share": share,
    "size": size,
    "ratio": ratio,
    "number": lambda value: f"{value:,.0f}" if value >= 100 or value == round(value) else significant(value, 2),
    "count": lambda value: f"{round(value):,}",
    "plain": lambda value: str(round(value)),
    "cores": lambda value: (
        "hardly any core was" if value < _HARDLY else "1 core was" if value == 1 else f"{value:.2g} cores were"
    ),
    "stage": lambda stage: STAGES[stage],
    "nth": nth,
    "place": words.site_text,
    "function": lambda site: (
        f"the module-level code of {words.file_name(site)}"
        if site.function == "<module>"
        else f"{words.function_name(site)} of {words.file_name(site)}"
    ),
    "assignment": lambda variable: f"{variable} = " if variable else "",
    "activity": lambda category: SPENT[category],
    "others": other_ranks,
    "": str,
}
"""Format of a field of a template -> how its value is written."""


class _UnknownError(Exception):
    """A value of a template is not known."""


class _Template(Formatter):
    def get_value(self, key: int | str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        return kwargs.get(str(key))

    def format_field(self, value: Any, format_spec: str) -> str:
        if value is None:
            raise _UnknownError
        if format_spec.startswith("n "):  # such as `{batches:n batch}`
            number, noun = _FORMATS["number"](value), format_spec[2:]
            return f"{number} {noun}{'' if number == '1' else 'es' if noun.endswith('ch') else 's'}"
        return _FORMATS[format_spec](value)


def fill(template: str, values: Mapping[str, Any]) -> str:
    """Return the template with its values; empty where one of them is not known."""
    try:
        return _Template().vformat(template, (), values)
    except _UnknownError:
        return ""


# ---------------------------------------------------------------- the changed line


_NEED_WORKERS: Final = frozenset({"multiprocessing_context", "persistent_workers", "prefetch_factor", "timeout"})
"""Arguments of a DataLoader that it refuses without workers."""


def changed_line(finding: Finding) -> str:
    """The statement at the line of the finding's loader or optimizer, with the suggested arguments; empty where there
    is none, or where the line is not the whole call."""
    settings = finding.filled_settings() or {}
    if "loader" in settings:
        name, site = "DataLoader", finding.values.get("loader_site")
    elif "optimizer" in settings and finding.sites:
        name, site = str(finding.values.get("optimizer")), finding.sites[0]
    else:
        return ""
    return with_arguments(site.source, name, settings.get("loader") or settings["optimizer"]) if site else ""


def with_arguments(source: str, name: str, arguments: Mapping[str, Any]) -> str:
    """Return a statement with other arguments of its only call of a function or class; empty where it is not sure."""
    tree = parsed_line(source)
    if tree is None:
        return ""
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and _called(node) == name]
    if len(calls) != 1 or any(keyword.arg is None for keyword in calls[0].keywords):
        return ""
    (call,) = calls
    unfit = _NEED_WORKERS if arguments.get("num_workers") == 0 else frozenset[str]()
    call.keywords = [keyword for keyword in call.keywords if keyword.arg not in unfit]
    for argument, value in arguments.items():
        given = next((keyword for keyword in call.keywords if keyword.arg == argument), None)
        if given is not None:
            given.value = ast.Constant(value)
        elif value:  # what is off stays away
            call.keywords.append(ast.keyword(argument, ast.Constant(value)))
    return ast.unparse(tree)


def _called(call: ast.Call) -> str:
    """Return the last name of what is called: `DataLoader` of `data.DataLoader(...)`."""
    match call.func:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
    return ""
