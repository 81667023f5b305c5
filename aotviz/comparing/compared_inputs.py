"""`aotviz.compare_inputs`: one function, compiled for several sets of inputs.

Whether arguments overlap, are one tensor, or require grad decides what AOTAutograd makes of a function. Here the same
function goes through the pipeline once for each named set, on copies that share memory as the originals do, and what
differs is told in sentences. The result is a recording with one compilation for each set, so it can be saved, opened
without torch, and shown side by side.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from msgspec.structs import replace

from aotviz.comparing.given_call import fresh
from aotviz.explain.compared_inputs import Compiled, outcome, sentences
from aotviz.explain.explanation import counted
from aotviz.frontends.stepping import trace_stages
from aotviz.reading.recording import Recording
from aotviz.recorder.sessions import producer, record
from aotviz.recording import progress
from aotviz.recording.compilation import Compilation
from aotviz.recording.findings import ComparedInputs, InputSet
from aotviz.recording.merging import merge
from aotviz.recording.strings import clean
from aotviz.torch_private import pytree
from aotviz.widgets import input_sets

if TYPE_CHECKING:
    import pandas as pd

EXAMPLE = "aotviz.compare_inputs(fn, overlapping=(m[:5], m[3:]), separate=(a, b))"
Call = tuple[tuple[Any, ...], dict[str, Any]]


def compare_inputs(fn: Callable[..., Any], /, **sets: tuple[Any, ...] | Mapping[str, Any]) -> Comparison:
    """Compile `fn` for several sets of inputs, and say how the results differ.

    Each keyword is the name of a set: a tuple with the arguments of a call, or a dict with its keyword arguments. The
    function is compiled for each set, but not called, and its graphs are not lowered. Only copies of `fn` and of the
    inputs are used, which share memory as the originals do. If `fn` cannot be compiled for a set, the result says so.

    Raises:
        TypeError: a set is neither a tuple nor a dict, has another number of arguments than the first set, or has no
            tensor; or something cannot be copied.
        ValueError: there are fewer than two sets.

    >>> import torch, aotviz
    >>> def double(a, b):
    ...     a.mul_(2)
    ...     return a + b
    >>> m = torch.zeros(8)
    >>> found = aotviz.compare_inputs(double, overlapping=(m[:5], m[3:]), separate=(m[:5], torch.ones(5)))
    >>> found.sentences[0].split(": ")[0]
    'With `overlapping`, `a` and `b` share a base of 8 elements'
    >>> found.sources["separate"].splitlines()[3]
    '    out = compiled_forward([a, b])'
    """
    calls = {name: _call(name, given) for name, given in sets.items()}
    _refuse_bad(calls)
    return comparison(name_of(fn), [(name, *compiled(fn, name, call)) for name, call in calls.items()])


class Comparison:
    """What `aotviz.compare_inputs` found. A notebook shows it side by side.

    `comparison["name"]` is the Compilation of a set, with its tables (`inputs`, `outputs`, `storages`, ...).
    """

    def __init__(self, recording: Recording) -> None:
        self.recording = recording  # one compilation for each set, whose id is the set's name

    @property
    def _compared(self) -> ComparedInputs:
        found = self.recording.compared
        assert found is not None
        return found

    @property
    def sentences(self) -> list[str]:
        """One sentence for each difference, what happens to memory first."""
        return list(self._compared.sentences)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the sets."""
        return tuple(one.name for one in self._compared.sets)

    @property
    def errors(self) -> dict[str, str]:
        """Why the function was not compiled for a set, by the set's name; empty if it was compiled for all."""
        return {one.name: one.error for one in self._compared.sets if one.error}

    @property
    def sources(self) -> dict[str, str]:
        """The source of each set's wrapper, by the set's name; "" if it was not compiled."""
        wrappers = {name: found.wrapper for name, found in self._found().items()}
        return {name: wrapper.source if wrapper else "" for name, wrapper in wrappers.items()}

    @property
    def inputs(self) -> pd.DataFrame:
        """The inputs of all sets: the columns of `Compilation.inputs`, with the set's name as the first."""
        return self._table("inputs")

    @property
    def outputs(self) -> pd.DataFrame:
        """The outputs of all sets: the columns of `Compilation.outputs`, with the set's name as the first."""
        return self._table("outputs")

    def __getitem__(self, name: str) -> Compilation:
        """The compilation of a set. Raises KeyError, which lists the names, for another name."""
        found = self._found()
        if name not in found:
            known = ", ".join(map(repr, self.names))
            what = f"nothing was compiled for {name!r}" if name in self.names else f"there is no set {name!r}"
            raise KeyError(f"{what}; the sets are {known}")
        return found[name]

    def to_html(self, path: str | os.PathLike[str]) -> None:
        """Write one self-contained page that shows the sets side by side in any browser, offline."""
        self.recording.to_html(path)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a file for `aotviz.load`, which opens it as a recording. Raises RecordingError."""
        self.recording.save(path)

    def __repr__(self) -> str:
        return input_sets.as_text(self.recording.data)

    def _repr_mimebundle_(self, **options: Any) -> Any:
        return self.recording._repr_mimebundle_(**options)

    def _found(self) -> dict[str, Compilation]:
        by_id = {found.id: found for found in self.recording}
        return {one.name: by_id[one.compilation] for one in self._compared.sets if one.compilation in by_id}

    def _table(self, name: str) -> pd.DataFrame:
        import pandas as pd  # slow to import, and only tables need it

        tables = [getattr(found, name).assign(set=one) for one, found in self._found().items()]
        table = pd.concat(tables, ignore_index=True) if tables else pd.DataFrame({"set": []})
        return table[["set", *(column for column in table.columns if column != "set")]]


def comparison(
    function: str, sets: Sequence[tuple[str, Compilation | None, str]], ids: Mapping[str, str] | None = None
) -> Comparison:
    """The comparison of sets that were compiled: (name, what was recorded, why it was not compiled).

    A compilation's id is the name of its set, unless `ids` has another for it.
    """
    found = [Compiled(clean(name), compilation, clean(error)) for name, compilation, error in sets]
    known = {one.name: (ids or {}).get(one.name, one.name) for one in found}
    records = [InputSet(one.name, known[one.name] if one.compilation else "", one.error) for one in found]
    parts = [
        (replace(one.compilation.data, id=known[one.name]), list(one.compilation.strings))
        for one in found
        if one.compilation
    ]
    told = ComparedInputs(function, records, sentences(function, found))
    return Comparison(Recording(replace(merge(parts, producer(), 0), compared=told)))


def compiled(fn: Callable[..., Any], name: str, call: Call) -> tuple[Compilation | None, str]:
    """What was recorded when copies of a function and its inputs were compiled, and why that failed ("" if not).

    Raises:
        TypeError: something cannot be copied.
    """
    try:
        new_fn, args, kwargs, _ = fresh(fn, *call)
    except TypeError as error:
        raise TypeError(f"set {name!r}: {error}") from error
    failed = ""
    with progress.aside(), record() as recording:
        try:
            trace_stages(new_fn, *args, kwargs=kwargs)
        except Exception as raised:
            failed = f"{type(raised).__name__}: {next(iter(str(raised).strip().splitlines()), '')}"
    found = recording.compilations
    if not found:
        return None, failed
    told = found[-1].data.error
    return found[-1], outcome(told) if failed and told else failed


def _call(name: str, given: Any) -> Call:
    if isinstance(given, tuple):
        return given, {}
    if isinstance(given, Mapping):
        return (), dict(given)
    hint = f"{name}=({'x' if isinstance(given, torch.Tensor) else '...'},)"
    raise TypeError(
        f"set {name!r} is of type {type(given).__name__}; a set is a tuple of arguments, e.g. {hint}, or a dict of "
        "keyword arguments"
    )


def _refuse_bad(calls: Mapping[str, Call]) -> None:
    if len(calls) < 2:
        got = f"only {next(iter(calls))!r}" if calls else "none"
        raise ValueError(f"compare_inputs needs at least two sets of inputs, and got {got}; for example {EXAMPLE}")
    first, (args, kwargs) = next(iter(calls.items()))
    for name, (other_args, other_kwargs) in calls.items():
        count, expected = len(other_args) + len(other_kwargs), len(args) + len(kwargs)
        if count != expected:
            raise TypeError(
                f"set {name!r} has {counted(count, 'argument')}, and set {first!r} has {expected}; each set is a call "
                "of the same function, with the same arguments"
            )
        if not any(isinstance(leaf, torch.Tensor) for leaf in pytree.tree_flatten((other_args, other_kwargs))[0]):
            raise TypeError(f"set {name!r} has no tensor among its arguments, so there is nothing to compile for it")


def name_of(fn: Any) -> str:
    """The name of a function, or the class of a module."""
    return clean(str(getattr(fn, "__name__", type(fn).__name__)))
