"""Finds in a source what could run code, open a file, resolve a name or join a path: see test_what_is_loaded.py."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1] / "aotviz"
READERS = (
    "recording",
    "logs",
    "explain",
    "widgets",
    "reading",
    "live",
    "teaching",
    "comparing",
)  # see a stranger's text
RUNS = frozenset(
    """
    eval exec compile __import__ import_module exec_module attrgetter methodcaller sympify parse_expr literal_eval
    Popen system popen run_path run_module dlopen CDLL url_to_fs
    """.split()
)
OPENS = frozenset(
    """
    open read_text read_bytes write_text write_bytes mkstemp mkdtemp TemporaryFile NamedTemporaryFile unlink rmtree
    rmdir mkdir makedirs extract extractall getline getlines memmap symlink_to rename renames copyfile copytree glob
    iglob rglob walk scandir iterdir
    """.split()
)
JOINS = frozenset("join joinpath with_name with_suffix with_stem relative_to".split())
PATHS = ("path", "folder", "place", "parent", "root", "here", "home", "dir", "directory", "caches")  # names of paths
MODULES = frozenset(
    "pickle marshal shelve dill cloudpickle subprocess runpy ctypes webbrowser yaml jinja2 fsspec".split()
)


def calls(tree: ast.AST, reads: bool) -> Iterator[tuple[str, str]]:
    """(function, call) of each dangerous call; `reads`: the file sees a stranger's text, so names count as well."""
    yield from _of(tree, "", reads)


def _of(node: ast.AST, function: str, reads: bool) -> Iterator[tuple[str, str]]:
    for child in ast.iter_child_nodes(node):
        inside = function
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            inside = f"{function}.{child.name}".removeprefix(".")
        elif isinstance(child, ast.Import | ast.ImportFrom):
            names = [child.module or ""] if isinstance(child, ast.ImportFrom) else [one.name for one in child.names]
            yield from ((function, f"import {name}") for name in names if name.partition(".")[0] in MODULES)
        elif isinstance(child, ast.Call):
            yield from ((function, called) for called in _called(child, reads))
        elif isinstance(child, ast.BinOp) and isinstance(child.op, ast.Div) and _is_path(child):
            yield function, "/"
        yield from _of(child, inside, reads)


def _called(call: ast.Call, reads: bool) -> Iterator[str]:
    name = _name(call.func)
    owner = _name(call.func.value) if isinstance(call.func, ast.Attribute) else ""
    if name in ("attrgetter", "methodcaller") and all(isinstance(one, ast.Constant) for one in call.args):
        return
    if name == "compile" and owner:  # re.compile, aotviz.compile, torch.compile
        return
    if name in ("walk", "system", "rename") and owner != "os":  # ast.walk, platform.system, a node's rename
        return
    if name in RUNS | OPENS or (name in JOINS and (name != "join" or owner == "path")):
        yield name
    if name == "load" and owner in ("torch", "pickle", "np", "numpy", "marshal", "yaml"):
        yield f"{owner}.load"
    if name in ("loads", "decompress") and owner in ("pickle", "marshal", "zlib", "gzip", "lzma", "bz2"):
        yield f"{owner}.{name}"
    if name in ("getattr", "setattr", "delattr") and reads and not isinstance(call.args[1], ast.Constant):
        yield name


def _name(node: ast.AST) -> str:
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


def _is_path(node: ast.BinOp) -> bool:
    """Whether a division looks like one of a path by a name."""
    left, right = node.left, node.right
    if isinstance(right, ast.JoinedStr) or (isinstance(right, ast.Constant) and isinstance(right.value, str)):
        return True
    called = _name(left.func) if isinstance(left, ast.Call) else _name(left)
    return called in ("Path", "files") or called.lower().rstrip("_").endswith(PATHS)


def of_package() -> Iterator[tuple[str, str, str]]:
    """(file, function, call) of each dangerous call of aotviz."""
    for path in sorted(PACKAGE.rglob("*.py")):
        where = path.relative_to(PACKAGE)
        tree = ast.parse(path.read_text(encoding="utf-8"))
        yield from ((str(where), *one) for one in calls(tree, where.parts[0] in READERS))
