"""Tells from the program's source whether a tensor on the CPU would lie on a GPU, if the program had one.

A tensor descends from the device if a module computed it, if the program moved it with `.to(device)`, or if it was
computed from such tensors. It descends from the host if it was made from Python data, by a random generator, by a
data set or a loader, or if it was copied to the CPU. The search follows the expression that reads the tensor back
through assignments, calls and arguments; it takes about 1 ms for a line, once.
"""

from __future__ import annotations

import ast
import builtins
import linecache
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from types import BuiltinFunctionType, FrameType, FunctionType, ModuleType
from typing import Any, Final

from profiler.agent.hooks._source import (
    COMPREHENSIONS,
    Binding,
    Position,
    Scope,
    SyntaxTree,
    child_expressions,
    dotted,
    imported,
    last_name,
    own_nodes,
)

NOTHING, HOST, UNKNOWN, DEVICE = range(4)
"""Origins, in the order in which one of two operands decides that of the result. NOTHING: not a tensor."""

_AGENT: Final = __file__.rpartition("/hooks/")[0]
_MAX_NODES: Final = 4_000
"""Expressions that one search may visit: about 10 ms."""
_MAX_SOURCE: Final = 250_000
"""Characters of a file that is still parsed: about 0.1 s, once."""
_MAX_PARSED: Final = 500_000
"""Characters of all files that are parsed: about 0.2 s and 35 MB of memory. What is read in further files has no known
origin. (To parse files anew instead took a second of one step of transformers' Trainer.)"""
_MAX_FILES: Final = 1_000
"""Files that are remembered: a program may make code without end."""
_MAX_LEVEL: Final = 40
"""Nested calls and callers that one search may follow."""
_FACTORIES: Final = (
    "tensor", "as_tensor", "asarray", "from_numpy", "frombuffer", "scalar_tensor", "empty", "empty_strided", "zeros",
    "ones", "full", "eye", "arange", "range", "linspace", "logspace", "rand", "randn", "randint", "randperm", "normal",
    "tril_indices", "triu_indices", "hann_window", "hamming_window",
)  # fmt: skip
_TO_HOST: Final = frozenset({"cpu", "item", "tolist", "numpy"})
_NO_TENSOR: Final = frozenset(
    {"shape", "dtype", "device", "layout", "size", "dim", "ndim", "ndimension", "numel", "nelement", "stride",
     "is_cuda", "requires_grad", "data_ptr", "element_size", "itemsize", "format", "join", "keys", "get_device"}
)  # fmt: skip
_NUMBERS: Final = frozenset(
    {"len", "int", "float", "bool", "str", "repr", "range", "isinstance", "hasattr", "id", "print", "type"}
)
_IMPLICIT: Final = frozenset(
    {"__array__", "__bool__", "__contains__", "__float__", "__format__", "__getitem__", "__index__", "__int__",
     "__iter__", "__len__", "__repr__", "__str__"}
)  # fmt: skip
"""Methods of Python's own that another expression than their call runs, such as `np.asarray(x)`."""


class Descent:
    """Finds the origins of tensors in a program that uses `torch`."""

    def __init__(self, torch: Any) -> None:
        self.torch = torch
        self.factories = {id(getattr(torch, name)) for name in _FACTORIES if hasattr(torch, name)}
        self._sources: dict[str, SyntaxTree | None] = {}
        self._parsed = 0

    def origin(self, frame: FrameType, method: str) -> tuple[int, int]:
        """The origin of the tensor on which `frame` calls `method` now, and how many callers of `frame` decide it."""
        search = _Search(self)
        try:
            return search.read(frame, method), search.depth
        except Exception:  # noqa: BLE001 - it searches any program's source, and must never fail the program
            return UNKNOWN, 0

    def is_in_dataset(self, frame: FrameType) -> bool:
        """Whether a method of a data set or of a sampler runs in `frame` or in one of its callers."""
        kinds = self.host_kinds()
        for current in islice(frames(frame), _MAX_LEVEL):
            owner = current.f_globals.get(current.f_code.co_qualname.partition(".")[0])
            if isinstance(owner, type) and issubclass(owner, kinds):
                return True
        return False

    def host_kinds(self) -> tuple[type, ...]:
        """Classes whose objects stay on the host; none until the program imports torch.utils.data."""
        data = sys.modules.get("torch.utils.data")
        names = ("Dataset", "DataLoader", "Sampler")
        return tuple(kind for name in names if isinstance(kind := getattr(data, name, None), type))

    def source(self, file: str, names: Mapping[str, Any]) -> SyntaxTree | None:
        """The syntax tree of a file, also of a cell of a notebook; None if there is no text, or too much."""
        if file not in self._sources:
            if len(self._sources) >= _MAX_FILES:
                return None
            text = "".join(linecache.getlines(file, dict(names)))
            is_small = 0 < len(text) <= min(_MAX_SOURCE, _MAX_PARSED - self._parsed)
            self._parsed += len(text) if is_small else 0
            self._sources[file] = _parsed(text) if is_small else None
        return self._sources[file]


def _parsed(text: str) -> SyntaxTree | None:
    """The syntax tree; None if the text is no Python that can be parsed: the file may have changed since its import."""
    try:
        return SyntaxTree(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def frames(frame: FrameType | None) -> Iterator[FrameType]:
    """The frame, then its callers."""
    while frame is not None:
        yield frame
        frame = frame.f_back


def _position(frame: FrameType) -> tuple[int, int, int, int] | None:
    at = next(islice(frame.f_code.co_positions(), frame.f_lasti // 2, None), None)
    if at is None or None in at:
        return None
    return at[0] or 0, at[1] or 0, at[2] or 0, at[3] or 0


class _Search:
    """One search. `depth` is how many callers of the first frame it looked at."""

    def __init__(self, rules: Descent) -> None:
        self.rules = rules
        self.depth = 0
        self._nodes = 0
        self._level = 0
        self._open: set[tuple[int, int]] = set()
        nn: Any = sys.modules.get("torch.nn")
        self._module: Any = getattr(nn, "Module", ())

    # ------------------------------------------------------------ reads

    def read(self, frame: FrameType, method: str) -> int:
        """The origin of the tensor on which `frame` calls `method`; a call of `to` is a read if it names the CPU."""
        located = self._locate(frame, 0)
        if located is None:
            return UNKNOWN
        node, scope = located
        if method in ("to", "cpu"):
            return self._read_by_copy(node, scope, method)
        if isinstance(node, ast.Call):
            function = node.func
            origin = self._arguments(node, scope)
            if isinstance(function, ast.Attribute) and not isinstance(self.value(function.value, scope), ModuleType):
                origin = max(origin, self.expression(function.value, scope))
            return origin or UNKNOWN
        if isinstance(node, ast.Subscript) and method in ("__index__", "__int__"):
            return self.expression(node.slice, scope) or UNKNOWN
        return max((self.expression(child, scope) for child in child_expressions(node)), default=NOTHING) or UNKNOWN

    def _read_by_copy(self, node: ast.AST, scope: Scope, method: str) -> int:
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or node.func.attr != method:
            return UNKNOWN if method == "cpu" else HOST
        if method == "to" and self._target(node, scope) != HOST:
            return HOST
        return self.expression(node.func.value, scope) or UNKNOWN

    def _locate(self, frame: FrameType, depth: int) -> tuple[ast.AST, Scope] | None:
        source = self.rules.source(frame.f_code.co_filename, frame.f_globals)
        at = _position(frame)
        node = source.expressions.get(at) if source is not None and at is not None else None
        if source is None or node is None:
            return None
        return node, Scope(source, source.scope(node), frame.f_globals, frame, depth)

    # ------------------------------------------------------------ expressions

    def expression(self, node: ast.AST, scope: Scope) -> int:
        """The origin of the value of an expression."""
        key = id(node), id(scope.arguments)
        self._nodes += 1
        if self._nodes > _MAX_NODES or self._level > _MAX_LEVEL:
            return UNKNOWN
        if key in self._open:
            return NOTHING  # it depends on itself, as in a loop: its other sources decide
        self._open.add(key)
        self._level += 1
        try:
            return self._expression(node, scope)
        finally:
            self._open.discard(key)
            self._level -= 1

    def _expression(self, node: ast.AST, scope: Scope) -> int:
        if isinstance(node, (ast.Constant, ast.JoinedStr, ast.Lambda)):
            return NOTHING
        if isinstance(node, ast.Name):
            return self._name(node.id, node, scope)
        if isinstance(node, ast.Attribute):
            return self._attribute(node, scope)
        if isinstance(node, ast.Call):
            return self._call(node, scope)
        if isinstance(node, ast.Subscript):
            return self.expression(node.value, scope)
        if isinstance(node, ast.IfExp):
            return max(self.expression(node.body, scope), self.expression(node.orelse, scope))
        if isinstance(node, COMPREHENSIONS):
            inner = Scope(scope.source, node, scope.names, scope.frame, scope.depth, scope.arguments)
            parts = (node.key, node.value) if isinstance(node, ast.DictComp) else (node.elt,)  # type: ignore[attr-defined]
            return max(self.expression(part, inner) for part in parts)
        return max((self.expression(child, scope) for child in child_expressions(node)), default=NOTHING)

    def _name(self, name: str, node: ast.AST, scope: Scope) -> int:
        use: ast.AST | None = node
        while not isinstance(scope.node, ast.Module):
            bindings = scope.source.bindings(scope.node).get(name)
            is_parameter = name in scope.parameters() or name in scope.keywords() or name == scope.star()
            if bindings or is_parameter:
                earlier = partial(self._parameter, name, scope) if is_parameter else None
                return self._bound(bindings or [], use, scope, earlier)
            use = use if isinstance(scope.node, COMPREHENSIONS) else None
            scope = scope.outer()
        value = scope.names.get(name, getattr(builtins, name, None))
        origin = self._object(value)
        bindings = scope.source.bindings(scope.node).get(name)
        if origin is not None or not bindings:
            return UNKNOWN if origin is None else origin
        return self._bound(bindings, use, scope, None)

    def _bound(
        self, bindings: Sequence[Binding], use: ast.AST | None, scope: Scope, earlier: Callable[[], int] | None
    ) -> int:
        """The origin of a name: of the last assignment before `use`, and of those before it that may still count."""
        at: Position = (use.lineno, use.col_offset) if isinstance(use, ast.expr) else (sys.maxsize, 0)
        around = scope.source.ancestors(use) if use is not None else ()
        blocks = {id(scope.source.blocks.get(each)) for each in around}
        origin = NOTHING
        for binding in sorted(bindings, key=lambda each: each.end, reverse=True):
            if binding.end <= at:
                origin = max(origin, self._bound_value(binding.value, scope))
                if binding.replaces and id(binding.block) in blocks:
                    break
        else:
            if earlier is not None:
                origin = max(origin, earlier())
        if origin == NOTHING:  # assigned later in the same loop
            origin = max((self._bound_value(binding.value, scope) for binding in bindings), default=NOTHING)
        return origin

    def _bound_value(self, value: ast.AST, scope: Scope) -> int:
        return self.expression(value, scope) if isinstance(value, ast.expr) else NOTHING

    def _object(self, value: Any) -> int | None:
        """The origin of an object of the program; None if it does not tell."""
        if isinstance(value, self._module):
            return DEVICE
        if isinstance(value, self.rules.host_kinds()):
            return HOST
        if isinstance(value, self.rules.torch.Tensor):
            return DEVICE if value.requires_grad else None
        if isinstance(value, (int, float, str, bytes)):
            return NOTHING
        return None

    def _attribute(self, node: ast.Attribute, scope: Scope) -> int:
        if node.attr in _NO_TENSOR:
            return NOTHING
        value = self.value(node, scope)
        if value is not None:
            return self._object(value) or NOTHING
        name = dotted(node)
        bindings = scope.source.bindings(scope.node).get(name) if name else None
        if bindings:
            return self._bound(bindings, node, scope, lambda: self._own_attribute(node, scope))
        return self._own_attribute(node, scope)

    def _own_attribute(self, node: ast.Attribute, scope: Scope) -> int:
        """The origin of `self.x`, from all methods that assign it; of another attribute, that of its object."""
        method = self._method_of(node.value, scope)
        if method is None:
            return self.expression(node.value, scope)
        owner, kind = method
        if kind is not None:
            return kind
        origin, is_method = NOTHING, False
        for function in owner.body:
            if isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)) and function.args.args:
                is_method = is_method or function.name == node.attr
                this = function.args.args[0].arg
                inner = scope if function is scope.node else Scope(scope.source, function, scope.names)
                for name, bindings in scope.source.bindings(function).items():
                    if name == f"{this}.{node.attr}" or (node.attr == "__dict__" and name.startswith(f"{this}.")):
                        origin = max(origin, *(self._bound_value(each.value, inner) for each in bindings))
        return origin or (NOTHING if is_method else UNKNOWN)

    def _method_of(self, node: ast.AST, scope: Scope) -> tuple[ast.ClassDef, int | None] | None:
        """For `self`: its class, and the origin of everything in it if it is a module or a data set."""
        while isinstance(scope.node, COMPREHENSIONS):
            scope = scope.outer()
        owner = scope.source.class_of(scope.node)
        parameters = scope.parameters()
        if owner is None or not parameters or not isinstance(node, ast.Name) or node.id != parameters[0]:
            return None
        return owner, self._kind(owner, scope)

    def _kind(self, owner: ast.ClassDef, scope: Scope) -> int | None:
        for value in (scope.names.get(owner.name), *(self.value(base, scope) for base in owner.bases)):
            if isinstance(value, type):
                if issubclass(value, self._module):
                    return DEVICE
                if issubclass(value, self.rules.host_kinds()):
                    return HOST
        return None

    # ------------------------------------------------------------ arguments

    def _parameter(self, name: str, scope: Scope) -> int:
        if scope.arguments is not None:
            return scope.arguments.get(name, NOTHING)
        owner = scope.source.class_of(scope.node)
        kind = self._kind(owner, scope) if owner is not None else None
        if kind is not None:
            return kind
        parameters = scope.parameters()
        is_method = owner is not None and bool(parameters) and parameters[0] in ("self", "cls")
        index = parameters.index(name) if name in parameters else -1
        if name == scope.star():
            index = len(parameters)
        return self._passed(scope, index, name, is_method)

    def _passed(self, scope: Scope, index: int, name: str, is_method: bool) -> int:
        """What the callers of the scope's function pass for its parameter: the running caller, else all in its file."""
        frame, depth = scope.frame, scope.depth
        caller = frame.f_back if frame is not None else None
        while caller is not None and caller.f_code.co_filename.startswith(_AGENT):
            caller, depth = caller.f_back, depth + 1
        if caller is not None:
            self.depth = max(self.depth, depth + 1)
            located = self._locate(caller, depth + 1)
            if located is None:
                return UNKNOWN
            node, inner = located
            called = getattr(scope.node, "name", "")
            if isinstance(node, ast.Call) and not (called in _IMPLICIT and last_name(node.func) != called):
                return self._argument(node, inner, index, name, is_method)
            if isinstance(node, ast.Subscript):  # it runs __getitem__
                return self.expression(node.slice if index else node.value, inner) or UNKNOWN
            return max((self.expression(child, inner) for child in child_expressions(node)), default=NOTHING) or UNKNOWN
        function = getattr(scope.node, "name", "")
        calls = scope.source.calls.get(function, ()) if function else ()
        origin = NOTHING
        for call in calls:
            inner = Scope(scope.source, scope.source.scope(call), scope.names)
            origin = max(origin, self._argument(call, inner, index, name, is_method))
        return origin or UNKNOWN

    def _argument(self, call: ast.Call, scope: Scope, index: int, name: str, is_method: bool) -> int:
        """The origin of one argument of a call: by keyword, else by position."""
        for keyword in call.keywords:
            if keyword.arg == name:
                return self.expression(keyword.value, scope)
        position = index - (1 if is_method and isinstance(call.func, ast.Attribute) else 0)
        for number, argument in enumerate(call.args):
            if isinstance(argument, ast.Starred):
                star = isinstance(argument.value, ast.Name) and argument.value.id == scope.star()
                if star and scope.arguments is None and position >= number:
                    return self._passed(scope, index - number, name, is_method)
                return self.expression(argument.value, scope)
            if number == position:
                return self.expression(argument, scope)
        return NOTHING

    def _arguments(self, call: ast.Call, scope: Scope) -> int:
        values = (*call.args, *(keyword.value for keyword in call.keywords))
        return max((self.expression(value, scope) for value in values), default=NOTHING)

    # ------------------------------------------------------------ calls

    def _call(self, node: ast.Call, scope: Scope) -> int:
        function = node.func
        target = self.value(function, scope)
        if target is not None:
            return self._call_of(target, node, scope)
        if isinstance(function, ast.Attribute):
            return self._method_call(node, function, scope)
        definition = self._definition(function, scope)
        if definition is not None:
            return self._result(definition, scope.source, scope.names, node, scope)
        return max(self.expression(function, scope), self._arguments(node, scope), UNKNOWN)

    def _call_of(self, target: Any, node: ast.Call, scope: Scope) -> int:
        """The origin of what a known function or class returns."""
        if id(target) in self.rules.factories:
            learned = any(each.arg == "requires_grad" for each in node.keywords)
            return self._target(node, scope) or (DEVICE if learned or self._default_device() else HOST)
        if isinstance(target, type):
            if issubclass(target, (self._module, self.rules.torch.nn.Parameter)):
                return DEVICE
            if issubclass(target, self.rules.host_kinds()):
                return HOST
        origin = self._object(target)
        if origin is not None:
            return origin
        if getattr(target, "__module__", "") == "builtins" and getattr(target, "__name__", "") in _NUMBERS:
            return NOTHING
        module = str(getattr(target, "__module__", None) or "")
        if module.partition(".")[0] == "numpy":
            return HOST
        target = getattr(target, "__wrapped__", target)
        if isinstance(target, FunctionType) and module.partition(".")[0] != "torch":
            source = self.rules.source(target.__code__.co_filename, target.__globals__)
            for definition in source.functions.get(target.__name__, ()) if source is not None else ():
                lines = [definition.lineno, *(each.lineno for each in definition.decorator_list)]
                if source is not None and min(lines) == target.__code__.co_firstlineno:
                    return self._result(definition, source, target.__globals__, node, scope)
        origin = self._arguments(node, scope)
        if isinstance(target, type) and module not in ("builtins", "collections"):
            return max(origin, UNKNOWN)  # an object of the program: what its attributes hold is not followed
        return origin or (NOTHING if isinstance(target, (type, BuiltinFunctionType)) else UNKNOWN)

    def _method_call(self, node: ast.Call, function: ast.Attribute, scope: Scope) -> int:
        name = function.attr
        if name in _TO_HOST:
            return HOST
        if name in ("cuda", "requires_grad_"):
            return DEVICE
        if name in _NO_TENSOR:
            return NOTHING
        if name == "to" and (target := self._target(node, scope)):
            return target
        origin = self.expression(function, scope)
        if origin == DEVICE:
            return DEVICE
        method = self._method_of(function.value, scope)
        definitions = scope.source.functions.get(name, ())
        if method is not None:
            definitions = [each for each in definitions if scope.source.class_of(each) is method[0]]
        if len(definitions) == 1 and scope.source.class_of(definitions[0]) is not None:
            origin = max(origin, self._result(definitions[0], scope.source, scope.names, node, scope))
        arguments = self._arguments(node, scope)
        return UNKNOWN if (origin, arguments) == (NOTHING, HOST) else max(origin, arguments)

    def _result(
        self, definition: Any, source: SyntaxTree, names: Mapping[str, Any], call: ast.Call, scope: Scope
    ) -> int:
        """The origin of what a function of the program returns or yields for the arguments of a call."""
        inner = Scope(source, definition, names)
        parameters = inner.parameters()
        is_method = source.class_of(definition) is not None and parameters[:1] in (["self"], ["cls"])
        named = [*parameters, *inner.keywords(), *([inner.star()] if inner.star() else [])]
        inner.arguments = {
            name: self._argument(call, scope, index, name, is_method) for index, name in enumerate(named)
        }
        owner = source.class_of(definition)
        kind = self._kind(owner, inner) if owner is not None else None
        if kind is not None:
            return kind
        origins = [
            self.expression(node.value, inner)
            for node in own_nodes(definition)
            if isinstance(node, (ast.Return, ast.Yield, ast.YieldFrom)) and node.value is not None
        ]
        return max(origins, default=NOTHING)

    def _target(self, node: ast.Call, scope: Scope) -> int:
        """Where `.to(...)` moves a tensor, or a function of torch makes one: DEVICE, HOST, or NOTHING if not named."""
        argument = next((each.value for each in node.keywords if each.arg == "device"), None)
        if argument is None and node.args and isinstance(node.func, ast.Attribute) and node.func.attr == "to":
            argument = node.args[0]
        if argument is None:
            return NOTHING
        if isinstance(argument, ast.Call) and last_name(argument.func) == "device" and argument.args:
            argument = argument.args[0]
        if isinstance(argument, ast.Constant):
            return HOST if argument.value == "cpu" else DEVICE if isinstance(argument.value, str) else NOTHING
        return NOTHING if self._is_dtype(argument, scope) else DEVICE

    def _is_dtype(self, argument: ast.AST, scope: Scope) -> bool:
        value = self.value(argument, scope)
        return isinstance(value, self.rules.torch.dtype) or "dtype" in last_name(argument).lower()

    def _default_device(self) -> object:
        module = sys.modules.get("torch.utils._device")
        return getattr(module, "CURRENT_DEVICE", None)

    # ------------------------------------------------------------ objects

    def value(self, node: ast.AST, scope: Scope) -> Any:
        """The module, class, function or other global object that an expression names; None if it names none."""
        if isinstance(node, ast.Attribute):
            owner = self.value(node.value, scope)
            if isinstance(owner, ModuleType):
                return vars(owner).get(node.attr)
            return None
        if not isinstance(node, ast.Name):
            return None
        while not isinstance(scope.node, ast.Module):
            bindings = scope.source.bindings(scope.node).get(node.id)
            if bindings:
                return imported(bindings[-1].value, node.id)
            if node.id in scope.parameters() or node.id in scope.keywords() or node.id == scope.star():
                return None
            scope = scope.outer()
        value = scope.names.get(node.id, getattr(builtins, node.id, None))
        return None if isinstance(value, self.rules.torch.Tensor) else value

    def _definition(self, function: ast.AST, scope: Scope) -> Any:
        """The definition of a function that is local to another one."""
        while isinstance(function, ast.Name) and not isinstance(scope.node, ast.Module):
            for binding in scope.source.bindings(scope.node).get(function.id, ()):
                if isinstance(binding.value, (ast.FunctionDef, ast.AsyncFunctionDef)):
                    return binding.value
            scope = scope.outer()
        return None
