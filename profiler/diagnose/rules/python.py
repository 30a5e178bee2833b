"""Python code of the loop, and waits in it."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from dataclasses import replace
from operator import itemgetter
from typing import Final

from profiler.analyse.model.analysis import Analysis
from profiler.analyse.model.finding import Confidence, KnockOut
from profiler.analyse.model.host import UPDATE, LineCost, ThreadActivity, ThreadState
from profiler.core.errors import Notice
from profiler.core.syntax import called_functions, line_nodes, parsed_line
from profiler.diagnose.device import hides_waits
from profiler.diagnose.known_cures import cure_of_function
from profiler.diagnose.model import MOST, NAMED, NEARLY_ALL
from profiler.diagnose.rule import Claim, Cost, Order, StepCosts, exactly, largest_sites, rule, take
from profiler.diagnose.rules._lines import appended, frame_costs, frame_sites, lines_above, mostly_waits, own_work
from profiler.diagnose.rules.settings import setting_line
from profiler.run.code_origin import USER, code_owner, package_folders
from profiler.run.model import Site
from profiler.run.tables import OF_THREAD

_ENVIRONMENTS: Final = ("gymnasium/", "gym/", "pettingzoo/", "dm_control/")
"""Folders of libraries that simulate environments."""


def _comprehension(sites: Sequence[Site]) -> str | None:
    """Return the comprehension in the first line that computes its items, as its text; None: there is none."""
    for node in line_nodes(sites[0].source) if sites else ():
        if isinstance(node, ast.ListComp | ast.GeneratorExp):
            computing = (ast.BinOp, ast.Compare, ast.Subscript)
            if any(isinstance(part, computing) for part in ast.walk(node.elt)):
                return ast.unparse(node)
    return None


def _computing_of_loops(costs: StepCosts) -> Cost | None:
    """Return what seems to be computing at lines of Python that call hardly any operator: samples tell the two apart
    only for all lines together. Nothing where most of Python's time is collecting garbage, at lines that are not
    known."""
    if costs.has_queue or costs.collecting >= MOST * costs.cost("python").seconds:
        return None
    lines = [
        replace(line, categories={"compute": line.categories["compute"]})
        for line in costs.lines
        if "compute" in line.categories
        and line.categories.get("python", 0.0) >= MOST * line.active
        and line.is_outside_torch
    ]
    return frame_costs(tuple(lines)).get("compute")


def _is_of_library(costs: StepCosts, site: Site) -> bool:
    """Return whether a line starts the loop of a library, as `trainer.fit()` does, or steps an environment of one."""
    line = next((line for line in costs.analysis.lines if line.site == site), None)
    if line is None:
        return False
    update = costs.phase(UPDATE)
    is_program = update is not None and update.site not in (None, site)  # whose loop calls the optimizer elsewhere
    is_loop = line.share >= MOST and not is_program
    folders, least = ("", NEARLY_ALL) if is_loop else (_ENVIRONMENTS, MOST)
    below = (
        each.below.seconds_per_step
        for each in costs.analysis.library
        if each.below.site == site and each.file.startswith(folders)
    )
    return max(below, default=0.0) >= least * line.seconds_per_step


@rule(
    "python-loop",
    "Python code of the training loop takes time",
    ("{share:share} of each step is Python.", "{unplaced:share} of each step is Python, at lines that are not known."),
    "Vectorize loops over elements: use operators on whole tensors. Compute once, before the loop, what is the same in "
    "each step. Or do the work less often.",
    fixes=(
        "Compute it by NumPy or torch on whole arrays, instead of item by item in {items}.",
        (
            "If this line runs for each item of a loop, call {arrays}() once on whole arrays. Else let it work on less "
            "data, as by a structure that needs only a part of it, and compute once what is the same in each step."
        ),
    ),
    order=Order.REST,
    knock_out=KnockOut.STATEMENT,
    is_of_code=True,
)
def python_loop(costs: StepCosts) -> Claim | Notice | None:
    """The Python that other rules leave, and what seems to be computing at its lines."""
    if not costs.has_queue and hides_waits(costs.analysis):
        return Notice("python-or-device-wait")
    claimed = take(costs, "python")
    if not claimed:
        return None
    if computing := _computing_of_loops(costs):
        claimed["compute"] = computing
    sites = costs.sites("python")
    # without a line it is spread over libraries, and at a line that runs a library's loop no loop can be replaced
    if sites and all(_is_of_library(costs, site) for site in sites):
        return None
    unplaced = None if sites else costs.share(claimed["python"].seconds)
    names = called_functions(sites[0].source) if sites else []
    values = {
        "items": _comprehension(sites),
        "arrays": next((name for name in names if name.partition(".")[0] in ("np", "numpy", "pd", "pandas")), None),
        "unplaced": unplaced,
    }
    # what replaces a loop takes some time too
    return Claim(claimed, sites, values, has_gain=bool(sites), is_most=True)


def _names(source: str) -> tuple[str, str] | None:
    """`target` and `net` of `target = copy.deepcopy(net)`; None where the line is another statement."""
    match parsed_line(source):
        case ast.Module(body=[ast.Assign(targets=[target], value=ast.Call(func=function, args=[model]))]):
            names = ast.unparse(target), ast.unparse(model)
            return names if ast.unparse(function).endswith("deepcopy") else None
    return None


@rule(
    "deep-copies",
    "The program makes deep copies in its steps",
    ("{share:share} of each step is in copy.deepcopy(), which needs new memory for each copy.",),
    "Copy only what is used, such as a model that is the best after an evaluation, and reuse an earlier copy.",
    code="{copied}.load_state_dict({model}.state_dict())",
    knock_out=KnockOut.LINE,
)
def deep_copies(costs: StepCosts) -> Claim | None:
    """The time in `copy.deepcopy`. The program may need some of the copies."""
    lines = (
        () if costs.has_queue else lines_above(costs, lambda each: each.name == "deepcopy" and each.file == "copy.py")
    )
    claimed = frame_costs(lines)
    if not claimed:
        return None
    sites, parameters = frame_sites(lines), lines_above(costs, lambda each: each.name == "Parameter.__deepcopy__")
    # the code is for a model only
    copied, model = (_names(sites[0].source) if parameters and sites else None) or ("copied", "model")
    values = {"copied": copied if parameters else None, "model": model}
    return Claim(claimed, sites, values, is_most=True)


@rule(
    "repeated-concatenation",
    "Data is appended by copying all of it",
    ("{share:share} of each step is making a new copy of {name} with more in it.",),
    "Write into memory that is allocated once, at a position that moves on, as a ring buffer does; or append parts to "
    "a list, and join them once, where they are used.",
    knock_out=KnockOut.LINE,
)
def repeated_concatenation(costs: StepCosts) -> Claim | None:
    """The time at lines such as `self.keys = torch.cat([self.keys, new])`."""
    lines = () if costs.has_queue else tuple(line for line in costs.analysis.lines if appended(line.site))
    claimed, sites = frame_costs(lines), frame_sites(lines)
    if not claimed:
        return None
    name = appended(sites[0])
    # a variable may be made anew in each step, and longer once, as by padding
    confidence = Confidence.MEDIUM if name.isidentifier() else Confidence.HIGH
    return Claim(claimed, sites, {"name": name}, confidence=confidence)


@rule(
    "garbage-collection",
    "Python's garbage collector stops the training",
    ("{seconds:time} of each step goes to collections.",),
    "Do not call gc.collect() while the model trains. Call gc.freeze() once the model is built: its objects are then "
    "not searched.",
    knock_out=KnockOut.SETTINGS,
    settings={"collect": False},
)
def garbage_collection(costs: StepCosts) -> Claim | None:
    """The recorded time of collections, those of 50 µs and more, which is time of Python."""
    seconds = costs.collecting
    if costs.is_known("python") or costs.has_queue:  # of a device, only collections that leave it idle count
        seconds = min(seconds, costs.cost("python").high)
    if not seconds:
        return None
    # a collection reads all objects, after which what the program uses is in the caches no more
    return Claim({"python": exactly(seconds)}, costs.sites("python"), is_least=True)


def _is_within(line: Site, hook: Site) -> bool:
    """Return whether a line is one of a hook, or of a function within it; only their lines tell lambdas apart."""
    is_inner = line.function.startswith(f"{hook.function}.<locals>.")
    if hook.function.endswith("<lambda>") and line.line != hook.line:
        return False
    return hook.is_in_file_of(line) and (line.function == hook.function or is_inner)


@rule(
    "module-hooks",
    "Hooks of modules take time in each step",
    (
        "{share:share} of each step is in functions that the program registered as hooks of modules.",
        "Number of such functions, which use values without their gradients: {hooks:count}.",
    ),
    "Remove the hooks with handle.remove() when they are no longer needed, or return from them early in most steps.",
    knock_out=KnockOut.STATEMENT,
)
def module_hooks(costs: StepCosts) -> Claim | None:
    """The time at lines of hooks that leave the graph of gradients: others may compute a part of the loss."""
    facts = () if costs.has_queue else costs.fact("module_hooks") or ()
    hooks = {Site.from_fact(each) for each in facts if each.get("is_outside")}
    lines = tuple(line for line in costs.analysis.lines if any(_is_within(line.site, hook) for hook in hooks))
    claimed = frame_costs(lines)
    if not claimed:
        return None
    running = {hook for hook in hooks if any(_is_within(line.site, hook) for line in lines)}
    values = {"hooks": len(running)}
    return Claim(claimed, frame_sites(lines), values, is_most=True, confidence=Confidence.MEDIUM)


_WAITS: Final = (ThreadState.LOCK, ThreadState.NETWORK, ThreadState.CHILD, ThreadState.IDLE)
"""States of a thread that waits and leaves the GIL to others."""


def _main_line(holder: ThreadActivity) -> Site | None:
    """Return the line at which a thread most often runs or is ready to run; None unless its function has most of this
    time."""
    if not holder.lines:
        return holder.site if holder.share_at_site > MOST else None
    shares = [(line.share * _running_part(line), line.site) for line in holder.lines]
    _, main = max(shares, key=itemgetter(0))
    of_function = sum(share for share, site in shares if (site.file, site.function) == (main.file, main.function))
    waiting = sum(share for state, share in holder.states if state in _WAITS)
    return main if of_function > MOST * (1.0 - waiting) else None


def _running_part(line: LineCost) -> float:
    whole = sum(line.categories.values())
    return 1.0 - sum(line.categories.get(state, 0.0) for state in _WAITS) / whole if whole else 1.0


def gil_holder(analysis: Analysis) -> ThreadActivity | None:
    """Return the thread beside the main one that held the GIL most; None where no window saw one hold it."""
    main = next((thread for thread in analysis.threads if thread.tid == thread.pid), None)
    others = [thread for thread in analysis.threads if main and thread.pid == main.pid and thread is not main]
    holder = max(others, key=lambda thread: thread.gil or 0.0, default=None)
    return holder if holder and (holder.gil or 0.0) >= NAMED else None


@rule(
    "thread-holds-gil",
    "Another Python thread holds the GIL while the training thread waits for it",
    (
        "{share:share} of each step waits for the GIL.",
        "That thread holds it {held:share} of the time.",
        "It runs {runs}().",
        "It was started at {started:place}.",
        "It is mostly in {inside}().",
    ),
    "Move the work of that thread to a process of its own, or into code that releases the GIL. If it watches or polls "
    "something, let it sleep for longer between two looks.",
    fixes=("{cure}",),
    knock_out=KnockOut.THREAD,
)
def thread_holds_gil(costs: StepCosts) -> Claim | None:
    """The waits for the GIL."""
    claimed = take(costs, "gil")
    if not claimed:
        return None
    holder = gil_holder(costs.analysis)
    if holder is None:
        return Claim(claimed, costs.sites("gil"), is_least=True)
    site, started = _main_line(holder), next(iter(setting_line(costs, f"{OF_THREAD}{holder.tid}")), None)
    values = {
        "held": holder.gil,
        "holder": site,
        "thread_site": holder.site,
        "inside": holder.calls if holder.calls and holder.calls != holder.runs else None,
        "runs": holder.runs or None,
        "started": started,
        "cure": cure_of_function(holder.runs) or None,
    }
    # without code of the program in that thread, the outermost frame is that of a library which starts threads
    folders = package_folders(costs.analysis.info.facts)
    own = site if site is not None and code_owner(site.file, folders) == USER else None
    return Claim(claimed, largest_sites([own, started]) or costs.sites("gil"), values, is_least=True)


@rule(
    "blocked-thread",
    "The training thread is blocked",
    ("{share:share} of each step is spent waiting.",),
    "Wait less often. If the training does not need the result at once, do what it waits for in another thread or "
    "process, and collect the result in a later step.",
    fixes=(
        (
            "Let {polling} block until there is something, as get(timeout=1) does: to ask again and again keeps the "
            "GIL and a core from other threads."
        ),
        (
            "It waits for {processes} of the program. Make their work cheaper, or call torch.set_num_threads(1) in "
            "each of them: all of their threads together should fit on the cores."
        ),
    ),
    order=Order.REST,
    knock_out=KnockOut.STATEMENT,
)
def blocked_thread(costs: StepCosts) -> Claim | None:
    """The waits that other rules leave, at most what its clocks show, since samples tell them only roughly."""
    claimed = take(costs, "waiting")
    if not claimed:
        return None
    blocked, waiting = costs.blocked, claimed["waiting"]
    # a call that starts a program or asks a server computes besides
    claimed |= own_work(() if costs.has_queue else filter(mostly_waits, costs.lines))
    if blocked is not None:
        part = min(1.0, blocked / waiting.seconds)
        claimed = {name: cost.part(part) for name, cost in claimed.items()}
    sites = costs.sites("waiting")
    sites, backward = largest_sites((*sites, *costs.line_sites("waiting", sites))), costs.phase("backward")
    # in a backward pass torch itself waits, for memory or for its threads: no change of the program removes that
    is_of_torch = bool(sites) and backward is not None and sites[0] == backward.site
    polling = _POLLING.search(sites[0].source) if sites else None
    lines = lines_above(costs, lambda each: each.file.startswith("multiprocessing/"))
    is_of_processes = bool(sites) and any(line.site == sites[0] for line in lines)
    values = {
        "polling": f"{polling[1]}()" if polling else None,
        "processes": "other processes" if is_of_processes else None,
    }
    # while the thread waits, its core sleeps or runs other work, and what follows finds its caches cold: in
    # tests/clinic/cases/trap_trainer, a pause of 4 ms lets the other 2.5 ms of the step take 3.3 ms. What other
    # processes of the program compute may still take a part of it
    is_most = bool(is_of_processes or polling)
    return Claim(claimed, sites, values, has_gain=not is_of_torch, is_least=not is_most, is_most=is_most)


_POLLING: Final = re.compile(r"\b(get_nowait|poll|empty|get(?=\([^()]*\bblock\s*=\s*False))\(")
"""Calls that ask whether there is something, and do not wait for it."""
