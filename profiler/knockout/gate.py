"""Decides in a program under trial which statements are executed; its class is put at the head of changed files.

It reports to a file of the run directory: {"skipped": NUMBER} when a statement is first skipped, also of the statements
that it executed and that are left out with it; {"stopped": NUMBER} when a thread is; {"steps": NUMBER} if an optimizer
stepped within a statement, and {"graph": NUMBER} if it makes a value through which gradients are computed: these are
never skipped.
"""

REPORTS = "trial.jsonl"


class _ProfilerGate:
    def __init__(self) -> None:
        import sys
        import threading
        import typing

        self._sys, self._threading = sys, threading
        self._runs: dict[int, int] = {}
        self._values: dict[int, dict[str, typing.Any]] = {}
        self._reported: set[int] = set()
        self._begun_at: dict[int, int] = {}
        self._within: dict[int, set[int]] = {}
        self._open = threading.local()
        self._training: set[int] = set()
        self._is_counting, self._steps = False, 0

    def begin(self, number: int) -> bool:
        """Return whether the statement is to be executed."""
        if self._runs.get(number) and number not in self._training:
            for each in {number, *self._within.get(number, ())} - self._reported:
                self._report("skipped", each)
            return False
        self._count_steps()
        for outer in self._outer():
            self._within.setdefault(outer, set()).add(number)
        self._outer().append(number)
        self._begun_at[number] = self._steps
        return True

    def end(self, number: int) -> None:
        """Note an execution, and whether the program trained in it."""
        self._outer().remove(number)
        self._runs[number] = self._runs.get(number, 0) + 1
        if self._steps > self._begun_at[number] and number not in self._training:
            self._training.add(number)
            self._report("steps", number)

    def keep(self, number: int, names: list[str], only_here: list[str], variables: dict[str, object]) -> None:
        """Remember what the statement assigned; `only_here` are the names that nothing else assigns before."""
        if number not in self._training and any(self._has_graph(variables.get(name)) for name in only_here):
            self._training.add(number)
            self._report("graph", number)
        self._values[number] = {name: self._detached(variables[name]) for name in names if name in variables}

    def returned(self, number: int, value: object) -> object:
        """Remember what a function returns."""
        self.keep(number, ["returned"], ["returned"], {"returned": value})
        return value

    def has(self, number: int, name: str) -> bool:
        """Return whether the statement assigned this name when it was executed."""
        return name in self._values.get(number, {})

    def value(self, number: int, name: str) -> object:
        """Return what it assigned."""
        return self._values[number][name]

    def stop(self, number: int) -> None:
        """Stop a thread other than the main one for good, when it comes here again."""
        if self._threading.current_thread() is self._threading.main_thread():
            return
        self._runs[number] = self._runs.get(number, 0) + 1
        if self._runs[number] > 1:
            self._report("stopped", number)
            self._threading.Event().wait()

    def _outer(self) -> list[int]:
        """Return the statements that this thread is executing, the outermost first."""
        numbers: list[int] = self._open.__dict__.setdefault("numbers", [])
        return numbers

    def _detached(self, value: object) -> object:
        if type(value) is dict:
            return {key: self._detached(part) for key, part in value.items()}
        if type(value) is list:
            return [self._detached(part) for part in value]
        if type(value) is tuple:
            return tuple(self._detached(part) for part in value)
        return value.detach() if hasattr(value, "requires_grad") and hasattr(value, "detach") else value

    def _has_graph(self, value: object) -> bool:
        if isinstance(value, dict):
            value = list(value.values())
        if isinstance(value, list | tuple):
            return any(self._has_graph(part) for part in value)
        return getattr(value, "grad_fn", None) is not None

    def _count_steps(self) -> None:
        module = self._sys.modules.get("torch.optim.optimizer")
        if not self._is_counting and module is not None and hasattr(module, "register_optimizer_step_post_hook"):
            self._is_counting = True
            module.register_optimizer_step_post_hook(self._step)

    def _step(self, *_: object) -> None:
        self._steps += 1

    def _report(self, event: str, number: int) -> None:
        import json
        import os

        self._reported.add(number)
        path = os.environ.get("PROFILER_RUN_DIR", "")
        if path:
            file = os.open(path + "/trial.jsonl", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
            os.write(file, (json.dumps({event: number}) + "\n").encode())
            os.close(file)


_profiler_gate = _ProfilerGate()
