"""What an entry of the cache holds: the last form of a program before its graphs are lowered, as data.

A hit lowers and links this form again. Lowering loads what the compiler has in its own cache, and linking writes the
wrapper, with the names of this process's arguments. So a program from the cache is made by the code that makes any
other, and what runs rarely (missing gradients, second derivatives, hooks on results) works as without a cache.

What depends on the call is not stored, but is that of the call that looks up: its fakes, names, and calling convention
(the fields of a FlatCall). The trace is not stored either. A second derivative needs it, and traces once more: see Note
[Traced once more] in tracing/second_order.py.
"""

from __future__ import annotations

import hashlib
import time
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import Annotated, Any

import msgspec
from torch.fx.experimental.symbolic_shapes import guard_bool

from aotviz.cache import declared, meshes, stored_graphs
from aotviz.cache.values import Broken, Reader, Writer
from aotviz.ir import graphs
from aotviz.ir.forms import FlatCall, GraphCall, SavedTensor, Split, StoredGraphs
from aotviz.torch_private import fake_tensors, inductor_results, stored_values
from aotviz.tracing.second_order import StoredTrace

LONGEST = 1 << 30  # bytes of an entry, decompressed
FORMAT = 5  # of the data; raised whenever another version could not read it
_OF_THE_CALL = {one.name for one in fields(FlatCall)} | {"forward", "source", "stored"}
_KINDS: dict[str, type[GraphCall]] = {"training": Split, "inference": GraphCall}


class Compiled(msgspec.Struct, frozen=True, array_like=True):
    """Where the compiler's own cache has a graph: its key there, and the guards of the entry.

    torch joins the key to a folder and loads what lies there, so only a key of the compiler's own form is read.
    """

    key: Annotated[str, msgspec.Meta(pattern=inductor_results.KEY)]
    guards: str | None


class Main(msgspec.Struct, frozen=True, array_like=True):
    """The main part of an entry."""

    format: int
    kind: str  # "training" | "inference"
    fields: dict[str, Any]  # of the form, by name
    origins: dict[str, str]  # saved value -> node of the trace
    lines: dict[str, list[int]]  # saved value -> nodes of Dynamo's graph that its line in the user's source made
    fakes: list[Any]
    storages: list[int]
    guards: list[Any]  # conditions on symbols
    from_data: list[Any]  # what is known of each symbol that depends on the data of tensors
    checks: list[Any]  # (condition on such symbols that the program checks, message)
    forward: Compiled | None  # None: the compiler has not stored the code of the graph
    names: list[str]  # the program's, and one per flat input
    wrapper: bytes  # digest of its source
    elapsed_ns: int  # that compiling took
    saved_at_unix_s: float


def packed(
    call: GraphCall,
    origins: Mapping[str, str],
    symbols: Sequence[Any],
    shared: Sequence[Any],
    stacks: Sequence[str],
    forward: Compiled | None,
    wrapper: str,
    elapsed_ns: int,
) -> tuple[bytes, bytes]:
    """The main part of an entry, and its guards alone, as bytes. `symbols` are those that the inputs had before the
    compilation, and `shared` the meshes and process groups that the key describes. `stacks` are those of the nodes of
    Dynamo's graph.

    Raises:
        Uncacheable: the program has something that cannot be stored.
    """
    shape_env = call.fake_mode.shape_env
    numbers = {} if shape_env is None else stored_values.numbered(symbols, shape_env)
    writer = Writer(numbers, len(symbols), meshes.Meshes(shared))
    writer.graph = lambda module: stored_graphs.pack(module, writer, shape_env)
    kind = "training" if isinstance(call, Split) else "inference"
    left_out = _OF_THE_CALL | ({"graph_module"} if isinstance(call, Split) else set())
    held = {one.name: writer.pack(getattr(call, one.name)) for one in fields(_KINDS[kind]) if one.name not in left_out}
    if isinstance(call, Split):
        held["saved"] = writer.pack(tuple(replace(one, stack="") for one in call.saved))
    conditions = () if shape_env is None else stored_values.guards(shape_env, numbers)
    guards = list(map(writer.expression, conditions))
    from_data, checks = writer.from_data(shape_env)
    main = Main(
        format=FORMAT,
        kind=kind,
        fields=held,
        origins=dict(origins),
        lines=_lines(call, stacks),
        fakes=writer.fakes,
        storages=writer.storages,
        guards=guards,
        from_data=from_data,
        checks=checks,
        forward=forward,
        names=names_of(call),
        wrapper=digest(wrapper),
        elapsed_ns=elapsed_ns,
        saved_at_unix_s=time.time(),
    )
    return zlib.compress(msgspec.msgpack.encode(main), 9), msgspec.msgpack.encode(guards)


def _lines(call: GraphCall, stacks: Sequence[str]) -> dict[str, list[int]]:
    """The nodes with the stack of each saved value. Their stacks in another process are those of another function."""
    nodes: dict[str, list[int]] = {}
    for number, stack in enumerate(stacks):
        nodes.setdefault(stack, []).append(number)
    saved = call.saved if isinstance(call, Split) else ()
    return {one.name: nodes[one.stack] for one in saved if one.stack and one.stack in nodes}


def names_of(call: FlatCall) -> list[str]:
    """What the wrapper calls the program and its inputs."""
    return [call.name, *(descriptor.name for descriptor in call.descriptors)]


def digest(text: str) -> bytes:
    return hashlib.blake2b(text.encode(), digest_size=16).digest()


def read(data: bytes) -> Main:
    """Raises Broken."""
    try:
        decompressing = zlib.decompressobj()
        whole = decompressing.decompress(data, LONGEST)
        if not decompressing.eof:
            raise Broken(f"an entry is damaged: it ends too early, or has more than {LONGEST >> 20} MB")
        main = msgspec.msgpack.decode(whole, type=Main)
    except (zlib.error, msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Broken(f"an entry is damaged: {error}") from error
    if main.format != FORMAT or main.kind not in _KINDS:
        raise Broken(f"an entry has format {main.format}; this version reads {FORMAT}")
    return main


def read_backward(data: bytes) -> Compiled | None:
    """The part of a backward. Raises Broken."""
    try:
        return msgspec.msgpack.decode(data, type=Compiled | None)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Broken(f"a backward of an entry is damaged: {error}") from error


class Reading:
    """An entry, read for one call. `symbols` are those of the call's inputs, and `shared` is from its key."""

    def __init__(self, main: Main, call: FlatCall, symbols: Sequence[Any], shared: Sequence[Any]) -> None:
        mode = call.fake_mode
        self.main, self._env = main, fake_tensors.shape_env(mode)
        held = meshes.Meshes(shared)
        self._reader = Reader(main.fakes, main.storages, symbols, mode, held, stored_values.ragged_in(call.args))
        self._guards = [self._reader.expression(one) for one in main.guards]

    def failed_guard(self) -> Any:
        """The first condition that the sizes of this call do not fulfil; None if they fulfil all."""
        return next((one for one in self._guards if not stored_values.holds(one, self._env)), None)

    def form(self, call: FlatCall, stacks: Sequence[str], stored: StoredGraphs) -> GraphCall:
        """The form that is lowered, for this call. Its guards become those of the call's program. `stacks` as in
        `packed`, in this process."""
        for condition in self._guards:
            guard_bool(self._env.create_symboolnode(condition))
        reader, main = self._reader, self.main
        reader.learn_of_data(main.from_data, main.checks)
        reader.check_fakes()
        reader.graph = lambda packed: stored_graphs.unpack(packed, reader)
        reader.inputs = call.descriptors
        kind = _KINDS[main.kind]
        found = {name: reader.read(value) for name, value in main.fields.items()}
        declared.check(kind, found)
        if kind is Split:
            found["graph_module"] = None
            found["saved"] = self._saved(found["saved"], found["forward_module"], stacks)
        names = dict(zip(main.names, names_of(call), strict=True))
        found["rewrites"] = tuple(_renamed(rewrite, names) for rewrite in found["rewrites"])
        return call.then(kind, **found, forward=StoredTrace(main.origins), source=call, stored=stored)

    def _saved(self, saved: Sequence[SavedTensor], forward: Any, stacks: Sequence[str]) -> tuple[SavedTensor, ...]:
        """The saved values, with this process's names of inputs, and the lines of the function that it compiles."""
        placeholders = graphs.placeholders(forward.graph)
        inputs = {node.name: str(node.meta["desc"]) for node in placeholders if "desc" in node.meta}
        told = []
        for one in saved:
            lines = {stacks[number] for number in self.main.lines.get(one.name, ())}
            stack = lines.pop() if len(lines) == 1 else ""  # several: the same operations are on other lines here
            told.append(replace(one, producer=inputs.get(one.name, one.producer), stack=stack))
        return tuple(told)


def _renamed(rewrite: Any, names: Mapping[str, str]) -> Any:
    """A rewrite with this process's names of the inputs."""
    if not hasattr(rewrite, "names"):
        return rewrite
    return replace(rewrite, names=tuple(names.get(name, name) for name in rewrite.names))
