"""Copy what a script needs from the program that runs as `__main__`: a file, or the cells of a notebook.

A script cannot import from that program, because importing it would run it. So its definitions are copied: a function
with the functions, classes and constants that it refers to, and so on, and the statements that register operators which
these call. All imports are copied too, since an import may also register something. A global that is neither a
definition nor a constant (a model, a table) is data. Its value is saved in the file next to the script.
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
REGISTERS = re.compile(r"register|impl|define|custom_op|triton_op|fallthrough")  # prefixes of registering functions
Definition = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


class MainProgram:
    """The statements of `source` that run once, and `namespace`, the globals after they have run.

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
        self._taken: set[int] = set()  # positions of the statements to copy
        self._names: set[str] = set()
        self._constants: dict[str, str] = {}
        self._operators: set[str] = set()
        self.data: dict[str, Any] = {}  # global -> value

    @staticmethod
    def running() -> MainProgram:
        """The running program. If it has no source (`python -c`, a prompt), there are no statements."""
        module = sys.modules["__main__"]
        cells = getattr(module, "_ih", None)  # IPython's list of the cells that ran
        try:
            source = "\n".join(filter(_parses, cells)) if isinstance(cells, list) else inspect.getsource(module)
        except (OSError, TypeError):
            source = ""
        return MainProgram(vars(module), source if _parses(source) else "")

    def has(self, thing: Any) -> bool:
        """Whether a function or class is a global that a statement of the program defines."""
        name = getattr(thing, "__name__", "")
        return self.namespace.get(name) is thing and any(name in _bound(one) for one in self._statements)

    def need(self, *names: str) -> None:
        """Take the statements that bind these globals, and everything that these statements need."""
        waiting = list(names)
        while waiting:
            while waiting:
                waiting += self._take_name(waiting.pop())
            waiting += self._take_registrations()

    def need_operator(self, name: str) -> None:
        """Take the statements that register the operator `ns::name`."""
        self._operators.add(name)
        self.need(*self._take_registrations())

    def need_of(self, source: str) -> None:
        """Take the globals that `source` refers to. `source` is a definition that is already in the script."""
        if _parses(source):
            self.need(*self._named(ast.parse(source)))

    def imports(self) -> list[str]:
        """Every import of the program, in order."""
        return [self._text(one) for one in self._statements if _imports(one)]

    def constants(self) -> list[str]:
        return [f"{name} = {literal}" for name, literal in self._constants.items()]

    def definitions(self) -> list[str]:
        return [self._text(one) for i, one in enumerate(self._statements) if i in self._taken]

    def _take_name(self, name: str) -> list[str]:
        """Take a global, and return the names that it needs."""
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
            self.data[name] = value  # a module is data although it is callable
            return []
        return self._take(definitions or binding[-1:])

    def _take(self, positions: Iterable[int]) -> list[str]:
        new = [i for i in positions if i not in self._taken]
        self._taken.update(new)
        return [name for i in new for name in self._named(self._statements[i])]

    def _take_registrations(self) -> list[str]:
        """Take statements that register something for a needed operator or with a taken object.

        Returns the names that these statements need.
        """
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
        """Whether a call refers to an object that is taken: `double.register_fake`, `impl(library, ...)`."""
        names = {part.id for part in ast.walk(call) if isinstance(part, ast.Name)}
        taken = {name for i in self._taken for name in _bound(self._statements[i])}
        return not names.isdisjoint(taken)

    def _operates(self, call: ast.expr) -> bool:
        return any(text.partition(".")[0] in self._operators for text in _texts(call))

    def _named(self, tree: ast.AST) -> list[str]:
        """The global names that a piece of the program reads. The operators that it calls are added to `_operators`."""
        for part in ast.walk(tree):
            path = ast.unparse(part).split(".") if isinstance(part, ast.Attribute) else []
            if path[:2] == ["torch", "ops"] and len(path) >= 4:
                self._operators.add(f"{path[2]}::{path[3]}")
        self._operators |= {m[1] + "::" + m[2] for text in _texts(tree) if (m := OPERATOR.fullmatch(text))}
        return list(_globals(symtable.symtable(ast.unparse(tree), "program", "exec")))

    def _text(self, statement: ast.stmt) -> str:
        """The statement's source text, including decorators."""
        first = min([statement.lineno, *(d.lineno for d in getattr(statement, "decorator_list", ()))])
        lines = self._source.splitlines()[first - 1 : statement.end_lineno]
        indent = " " * statement.col_offset
        if all(line.startswith(indent) or not line.strip() for line in lines) and _parses(
            text := "\n".join(line.removeprefix(indent) for line in lines)
        ):
            return text
        return ast.unparse(statement)


def _globals(table: symtable.SymbolTable) -> Iterator[str]:
    """The global names that a piece of the program reads, without the parameters and variables of functions."""
    top = table.get_type() == "module"
    yield from (one.get_name() for one in table.get_symbols() if one.is_referenced() and (top or one.is_global()))
    for child in table.get_children():
        yield from _globals(child)


def _once(statements: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements at the top level, also inside branches and blocks. A `try` around imports is one statement."""
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
    """The names that a statement binds."""
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
    """The last part of the called name: `register_fake` for `torch.library.register_fake("ns::name")`."""
    called = call.func if isinstance(call, ast.Call) else call
    return called.attr if isinstance(called, ast.Attribute) else called.id if isinstance(called, ast.Name) else ""


def _texts(tree: ast.AST) -> set[str]:
    return {part.value for part in ast.walk(tree) if isinstance(part, ast.Constant) and isinstance(part.value, str)}


def _literal(value: Any) -> str:
    """The source text of a constant; "" if the value is not a constant."""
    if isinstance(value, torch.device):
        return f"torch.device({str(value)!r})"
    if isinstance(value, torch.dtype):
        return repr(value)
    try:
        return repr(value) if ast.literal_eval(repr(value)) == value else ""
    except (ValueError, SyntaxError, TypeError, RecursionError, RuntimeError):  # a tensor's == raises RuntimeError
        return ""


def _parses(source: str) -> bool:
    try:
        ast.parse(source)
    except (SyntaxError, ValueError):
        return False
    return True
