"""What a script needs of the program that runs as `__main__`: a file, or the cells of a notebook.

Nothing can be imported from there: to import a program is to run it. So its definitions are copied out: a function with
the functions, classes and constants that it names, and so on; and what registers operators that one of these calls. All
of its imports come along, since an import may register something as well. A global that is neither defined nor a
constant (a model, a table) is data, and its value goes into the file beside the script.
"""

from __future__ import annotations

import ast
import builtins
import inspect
import re
import symtable
import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch

OPERATOR = re.compile(r"(\w+)::(\w+)(\.\w+)?")
REGISTERS = re.compile(r"register|impl|define|custom_op|triton_op|fallthrough")  # how such a function's name begins
Definition = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


class MainProgram:
    """The statements of `source` that are run once, and the globals that they left in `namespace`.

    >>> source = "half = 1 / 2\\ndef g(x): return x * half\\ndef f(x): return g(x)\\nprint(f(3))"
    >>> main = MainProgram({"half": 0.5, "f": ..., "g": ...}, source)
    >>> main.need("f")
    >>> main.constants(), main.definitions()
    (['half = 0.5'], ['def g(x): return x * half', 'def f(x): return g(x)'])
    """

    def __init__(self, namespace: Mapping[str, Any], source: str) -> None:
        self.namespace = namespace
        self._source = source
        self._statements = list(_once(ast.parse(source).body))
        self._taken: set[int] = set()  # positions of statements
        self._names: set[str] = set()
        self._constants: dict[str, str] = {}
        self._operators: set[str] = set()
        self.data: dict[str, Any] = {}  # global -> value

    @staticmethod
    def running() -> MainProgram:
        """The program that runs now. Without source (`python -c`, a prompt) it has no statements."""
        module = sys.modules["__main__"]
        cells = getattr(module, "_ih", None)  # a notebook's, as IPython ran them
        try:
            source = "\n".join(filter(_parses, cells)) if isinstance(cells, list) else inspect.getsource(module)
        except (OSError, TypeError):
            source = ""
        return MainProgram(vars(module), source if _parses(source) else "")

    def has(self, thing: Any) -> bool:
        """Whether a function or class is a global of the program, defined by a statement of it."""
        name = getattr(thing, "__name__", "")
        return self.namespace.get(name) is thing and any(name in _bound(one) for one in self._statements)

    def need(self, *names: str) -> None:
        """Take what binds these globals, and all that this needs in turn."""
        waiting = list(names)
        while waiting:
            while waiting:
                waiting += self._take_name(waiting.pop())
            waiting += self._take_registrations()

    def need_operator(self, name: str) -> None:
        """Take what registers an operator, `ns::name`."""
        self._operators.add(name)
        self.need(*self._take_registrations())

    def need_of(self, source: str) -> None:
        """Take what a definition names that stands elsewhere."""
        if _parses(source):
            self.need(*self._named(ast.parse(source)))

    def imports(self) -> list[str]:
        """Every import of the program, in its order."""
        return [self._text(one) for one in self._statements if _imports(one)]

    def constants(self) -> list[str]:
        return [f"{name} = {literal}" for name, literal in self._constants.items()]

    def definitions(self) -> list[str]:
        return [self._text(one) for i, one in enumerate(self._statements) if i in self._taken]

    def _take_name(self, name: str) -> list[str]:
        """The names that it needs in turn."""
        if name in self._names or name not in self.namespace or hasattr(builtins, name) or name.startswith("__"):
            return []
        self._names.add(name)
        value = self.namespace[name]
        binding = [i for i, one in enumerate(self._statements) if name in _bound(one)]
        if any(_imports(self._statements[i]) for i in binding) or inspect.ismodule(value):
            return []
        literal = _literal(value)
        if literal:
            self._constants[name] = literal
            return []
        definitions = [i for i in binding if isinstance(self._statements[i], Definition)]
        if not definitions and not callable(value) and not _is_library(self._statements, binding):
            self.data[name] = value
            return []
        if not definitions and callable(getattr(value, "state_dict", None)):
            self.data[name] = value  # a module is data, though it can be called
            return []
        return self._take(definitions or binding[-1:])

    def _take(self, positions: Iterable[int]) -> list[str]:
        new = [i for i in positions if i not in self._taken]
        self._taken.update(new)
        return [name for i in new for name in self._named(self._statements[i])]

    def _take_registrations(self) -> list[str]:
        """Of statements that register something for an operator that is called, or by an object that is taken."""
        namespaces = {operator.partition("::")[0] for operator in self._operators}
        found = []
        for i, one in enumerate(self._statements):
            if i in self._taken or _imports(one):
                continue
            if isinstance(one, Definition):
                doing: list[ast.expr] = one.decorator_list
            else:
                doing = [one.value] if isinstance(one, ast.Expr | ast.Assign) else []
            for call in doing:
                registers = REGISTERS.match(_last_name(call)) and (self._mentions(call) or self._operates(call))
                opens = _last_name(call) == "Library" and not namespaces.isdisjoint(_texts(call))
                if registers or opens:
                    found.append(i)
                    self._names |= _bound(one)
                    break
        return self._take(found)

    def _mentions(self, call: ast.expr) -> bool:
        """Whether it is about an object that is taken: `double.register_fake`, `impl(library, ...)`."""
        names = {part.id for part in ast.walk(call) if isinstance(part, ast.Name)}
        taken = {name for i in self._taken for name in _bound(self._statements[i])}
        return not names.isdisjoint(taken)

    def _operates(self, call: ast.expr) -> bool:
        return any(text.partition(".")[0] in self._operators for text in _texts(call))

    def _named(self, tree: ast.AST) -> list[str]:
        """The names that a piece of the program reads; the operators that it calls are noted."""
        for part in ast.walk(tree):
            path = ast.unparse(part).split(".") if isinstance(part, ast.Attribute) else []
            if path[:2] == ["torch", "ops"] and len(path) >= 4:
                self._operators.add(f"{path[2]}::{path[3]}")
        self._operators |= {m[1] + "::" + m[2] for text in _texts(tree) if (m := OPERATOR.fullmatch(text))}
        return list(_globals(symtable.symtable(ast.unparse(tree), "program", "exec")))

    def _text(self, statement: ast.stmt) -> str:
        """As it was written; a definition with its decorators."""
        first = min([statement.lineno, *(d.lineno for d in getattr(statement, "decorator_list", ()))])
        lines = self._source.splitlines()[first - 1 : statement.end_lineno]
        indent = " " * statement.col_offset
        if all(line.startswith(indent) or not line.strip() for line in lines) and _parses(
            text := "\n".join(line.removeprefix(indent) for line in lines)
        ):
            return text
        return ast.unparse(statement)


def _globals(table: symtable.SymbolTable) -> Iterator[str]:
    """The names of the program's own that a piece of it reads: no function's parameters and variables."""
    top = table.get_type() == "module"
    yield from (one.get_name() for one in table.get_symbols() if one.is_referenced() and (top or one.is_global()))
    for child in table.get_children():
        yield from _globals(child)


def _once(statements: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    """Statements that a program runs at its top, and in branches and blocks. A `try` around imports counts as one."""
    for one in statements:
        if isinstance(one, ast.Try) and any(isinstance(part, ast.Import | ast.ImportFrom) for part in one.body):
            yield one
        elif isinstance(one, ast.If | ast.With | ast.For | ast.While | ast.Try):
            blocks = [one.body, getattr(one, "orelse", []), getattr(one, "finalbody", [])]
            blocks += [handler.body for handler in getattr(one, "handlers", [])]
            for block in blocks:
                yield from _once(block)
        else:
            yield one


def _bound(statement: ast.stmt) -> set[str]:
    """The names that a statement gives a value to."""
    if isinstance(statement, Definition):
        return {statement.name}
    found = {part.id for part in ast.walk(statement) if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store)}
    for part in ast.walk(statement):
        if isinstance(part, ast.Import | ast.ImportFrom):
            found |= {alias.asname or alias.name.partition(".")[0] for alias in part.names}
    return found


def _imports(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Import | ast.ImportFrom | ast.Try)


def _is_library(statements: list[ast.stmt], binding: list[int]) -> bool:
    made = [statements[i] for i in binding]
    return any(isinstance(one, ast.Assign) and _last_name(one.value) == "Library" for one in made)


def _last_name(call: ast.expr) -> str:
    """`register_fake` of `torch.library.register_fake("ns::name")`."""
    called = call.func if isinstance(call, ast.Call) else call
    return called.attr if isinstance(called, ast.Attribute) else called.id if isinstance(called, ast.Name) else ""


def _texts(tree: ast.AST) -> set[str]:
    return {part.value for part in ast.walk(tree) if isinstance(part, ast.Constant) and isinstance(part.value, str)}


def _literal(value: Any) -> str:
    """How a constant is written; "" for a value that is not a constant."""
    if isinstance(value, torch.device):
        return f"torch.device({str(value)!r})"
    if isinstance(value, torch.dtype):
        return repr(value)
    try:
        return repr(value) if ast.literal_eval(repr(value)) == value else ""
    except (ValueError, SyntaxError, TypeError, RecursionError, RuntimeError):  # RuntimeError: of a tensor's ==
        return ""


def _parses(source: str) -> bool:
    try:
        ast.parse(source)
    except (SyntaxError, ValueError):
        return False
    return True
