"""Programs from the cache: the look-up before a compilation, and the saving after it (docs/design/system.md E5).

A graph from Dynamo is looked up before any stage runs. `aot_function` and its family have no such graph: their programs
are looked up when stage "metadata" has traced them. If an entry's guards hold for the sizes of this call, the stages
"lower" and "link" make the program from it, and no other stage runs. Otherwise the pipeline compiles it, and saves the
result by a `Keeper`, which observes the stages as a recorder does. So no stage knows of the cache.

Nothing here makes a program fail: what cannot be looked up or saved is compiled, and the recording says why. If this
machine has no code for an entry's graphs, they are compiled here, without tracing: see shared_code.py. An entry is
removed only for a fault of its own, and never for what this machine or process lacks.
"""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from aotviz import pipeline
from aotviz.cache import bypasses
from aotviz.cache import entry as entries
from aotviz.cache.carried import Carried
from aotviz.cache.entry import Compiled, Main, Reading
from aotviz.cache.key import Key, Uncacheable, inductors, of_graph, of_trace
from aotviz.cache.names import NoName
from aotviz.cache.seals import Unavailable, warn_once
from aotviz.cache.store import Entry, Store
from aotviz.cache.values import Broken
from aotviz.frontends import rehearsal, shared_code, stored_results
from aotviz.frontends.compiling import entered, repeatable
from aotviz.ir import dynamo_capture
from aotviz.ir.forms import BackwardRequest, FlatCall, Form, GradientRequest, LoweredBackward, Request, TracedCall
from aotviz.ir.lookup import LookUp, Outcome
from aotviz.ir.serializable import class_of_results
from aotviz.lowerings import EAGER, Lowering, OneCompiler
from aotviz.pipeline import Observer, Role
from aotviz.recorder.sessions import Session
from aotviz.recording.dynamo_stage import COMPILE_ID
from aotviz.runtime.lowered import LoweredSplit, Program
from aotviz.stages import scalars
from aotviz.torch_private import fake_tensors, stored_values
from aotviz.torch_private.inductor_results import stored_under
from aotviz.torch_private.what_follows import Follows

NAME = "name"  # the part that `aotviz cache ls` shows: the function's name, which is in no key
RECORDING = "recording"  # the part of an entry that holds what was recorded of the compilation


@dataclass(frozen=True)
class Question:
    """A compilation whose key is known."""

    store: Store | Carried
    key: Key
    lowering: Any  # a Lowering, or Inductor's compilers: what loads the code that it has stored
    stacks: tuple[str, ...]  # of the nodes of the graph that the key describes


@dataclass(frozen=True)
class Lookup:
    """What the cache has for a compilation, before its stages run."""

    program: Program | None  # None: it is to be compiled
    observer: Observer  # of this compilation


def question(
    store: Store | Carried | None,
    module: Any,
    inputs: Sequence[Any],
    options: Any,
    lowering: Lowering,
    follows: Follows,
    numbers: Any = None,
) -> Question | LookUp | None:
    """What to ask about a graph from Dynamo. A LookUp says why it has no key; None if nothing is cached."""
    if store is None:
        return None
    try:
        key = of_graph(module, inputs, options, lowering, numbers, follows)
        return Question(store, key, lowering, dynamo_capture.stacks(module))
    except Exception as error:  # a program must not fail because it cannot be described
        return _no_key(error)


def _question_of_trace(store: Store, call: TracedCall) -> Question | LookUp:
    compiler = call.options.fw_compiler
    own = OneCompiler(call.options.backend, compiler) if class_of_results(compiler) is not None else EAGER
    try:
        stacks = dynamo_capture.stacks_of(call.forward.graph())
        return Question(store, of_trace(call), inductors(compiler) or own, stacks)
    except Exception as error:  # a program must not fail because it cannot be described
        return _no_key(error)


def _no_key(error: Exception) -> LookUp:
    where = error.where if isinstance(error, Uncacheable) else ""
    return LookUp(Outcome.BYPASS, reason=_why(error, "its key could not be made"), where=where)


def compile_traced(request: Request, session: Session, store: Store | None) -> Program:
    """Compile a request of `aot_function` and its family, unless `store` has its program."""
    with entered(request, session) as stages:
        program = stages.program() if store is None else _traced(store, stages.request, stages.observer)
    session.keep(program)
    return program


def _traced(store: Store, request: Request, observer: Observer) -> Program:
    first = _Held()
    try:
        call: TracedCall = pipeline.run(_until(Role.FORWARD), request, first)
    except BaseException:
        first.tell(observer)
        raise
    found = look_up(_question_of_trace(store, call), request, observer, call.source)
    if found.program is not None:
        return found.program
    first.tell(found.observer)
    call = pipeline.run(pipeline.prepare(Role.CONVENTION), call, found.observer)
    return pipeline.resume(call, found.observer)


def _until(role: Role) -> tuple[pipeline.Stage, ...]:
    """The stages before a look-up."""
    return pipeline.part(pipeline.TRAINING, Role.FLATTEN, role)


def look_up(
    asked: Question | LookUp | None,
    request: Request,
    observer: Observer,
    call: FlatCall | GradientRequest | None = None,
) -> Lookup:
    """The program of a request, if the cache has it. `call` is the flat request, if it has run the first stage."""
    if asked is None:
        return Lookup(None, observer)
    if isinstance(asked, LookUp):
        observer.looked_up(asked)
        return Lookup(None, observer)
    with pipeline.lock:
        program, told = _looked_up(asked, request, observer, call)
    observer.looked_up(told)
    if program is not None or told.outcome is Outcome.BYPASS:
        return Lookup(program, observer)
    return Lookup(None, pipeline.Observers((observer, Keeper(asked, observer))))


def _looked_up(asked: Question, request: Request, observer: Observer, call: Any) -> tuple[Program | None, LookUp]:
    """The program of a request, if the cache has it, and the answer of the cache."""
    key = asked.key
    told = LookUp(Outcome.MISS, key.digest, key.ingredients)
    entry: Entry | None = None
    try:
        found = asked.store.entries(key.digest)
        if not found:
            reason = "its entry was damaged and has been removed" if key.digest in asked.store.damaged else ""
            return None, _nearest(asked, replace(told, reason=reason))
        call = call or pipeline.run(_until(Role.FLATTEN), repeatable(request), Observer())
        symbols, failed = stored_values.symbols_in(call.args), None
        for entry in found:
            main = entries.read(entry.main)
            reading = Reading(main, call, symbols, key.shared)
            failed = reading.failed_guard()
            if failed is None:
                program = _made(asked, entry, reading, call, request, observer)
                hit = replace(told, saved_ns=main.elapsed_ns, saved_at_unix_s=main.saved_at_unix_s)
                return program, replace(hit, outcome=Outcome.HIT)
        return None, replace(told, outcome=Outcome.GUARD_MISS, reason=_said(failed, call))
    except Unavailable as error:
        return None, _unavailable(asked.store, told, error)
    except Exception as error:  # whatever is wrong with an entry, the program is compiled
        if scalars.asks_for_restart(error):
            raise
        return None, replace(told, reason=_discarded(asked.store, entry, error))


def _discarded(store: Store | Carried, entry: Entry | None, error: Exception) -> str:
    """Why an entry could not be loaded. It is removed, unless this process lacks something that it needs."""
    if entry is not None and not _is_of_this_process(error):
        with contextlib.suppress(Unavailable):
            store.discard(entry, everywhere=isinstance(error, Broken))
    return str(error) if isinstance(error, Broken) else f"it could not be loaded ({type(error).__name__}: {error})"


def _is_of_this_process(error: BaseException | None) -> bool:
    """Whether an entry could not be loaded because this process lacks something, such as an operator of the user's."""
    return error is not None and (isinstance(error, NoName) or _is_of_this_process(error.__cause__))


def _made(
    asked: Question, entry: Entry, reading: Reading, call: FlatCall, request: Request, observer: Observer
) -> Program:
    """The program of an entry. Raises Broken."""
    main, graphs = reading.main, _Stored(asked, entry, reading.main)
    form = reading.form(call, asked.stacks, graphs)
    if not asked.store.is_rehearsed(entry):
        rehearsal.check(form, call, request.fn)
        with contextlib.suppress(Unavailable):  # in a read-only store it is tried each time
            asked.store.note_rehearsed(entry)
    loading = _Loading(observer, Keeper(asked, observer, entry))
    program: Program = pipeline.run(pipeline.finish(), form, loading)
    if entries.names_of(call) == main.names and entries.digest(program.source) != main.wrapper:
        raise Broken("its wrapper differs from the one that was saved")
    program = pipeline.with_backward(program)
    asked.store.used(entry)
    observer.replayed(request, program, asked.store.part(entry, RECORDING))
    return program


def _nearest(asked: Question, told: LookUp) -> LookUp:
    near = asked.store.nearest(asked.key.ingredients)
    if near is None:
        return told
    differs = {name: (there or "", here or "") for name, (there, here) in near.differing.items()}
    return replace(told, nearest=near.key, differs=differs)


def _said(failed: Any, call: FlatCall) -> str:
    """Why the guards of an entry do not hold, in the user's names of sizes."""
    env = fake_tensors.shape_env(call.fake_mode)
    names = stored_values.source_names(env, failed.free_symbols)
    named = {str(symbol): names.get(symbol, str(symbol)) for symbol in failed.free_symbols}
    text = re.sub(r"\w+", lambda word: named.get(word[0], word[0]), str(failed))
    symbols = sorted(failed.free_symbols, key=str)
    values = (f"{named[str(symbol)]} is {stored_values.hint_of(symbol, env)}" for symbol in symbols)
    return f"it was compiled for {text}, and {', '.join(values)}"


def _unavailable(store: Store | Carried, told: LookUp, error: Unavailable) -> LookUp:
    warn_once(str(store.folder), "unavailable", f"aotviz's cache is not used: {error}")
    return replace(told, outcome=Outcome.BYPASS, reason=_why(error, ""))


def _why(error: Exception, failed: str) -> str:
    """Why a program is not cached."""
    if isinstance(error, Uncacheable):
        return error.told
    if isinstance(error, Unavailable):
        return bypasses.STORE(str(error)).told
    return bypasses.FAULT(f"{failed} ({type(error).__name__}: {error})").told


class _Held(Observer):
    """Keeps what it is told of the first stages until it is known whether they belong to a compilation or to a hit."""

    def __init__(self) -> None:
        self._told: list[tuple[str, tuple[Any, ...]]] = []  # (method, its arguments)

    def tell(self, observer: Observer) -> None:
        for method, told in self._told:
            getattr(observer, method)(*told)

    def before(self, *told: Any) -> None:
        self._told.append(("before", told))

    def after(self, *told: Any) -> None:
        self._told.append(("after", told))

    def failed(self, *told: Any) -> None:
        self._told.append(("failed", told))


class _Loading(Observer):
    """Of a program from the cache: its recording has the stages that make it, and the backwards of the entry."""

    def __init__(self, observer: Observer, keeper: Keeper) -> None:
        self._observer, self._keeper = observer, keeper

    def late(self, request: BackwardRequest) -> Observer:
        if self._keeper.has(request.part):
            return Observer()
        return pipeline.Observers((self._observer.late(request), self._keeper))

    def further(self) -> Observer:
        return self._observer.further()


class _Stored:
    """The graphs of an entry that its compiler has compiled, here or on another machine."""

    def __init__(self, asked: Question, entry: Entry, main: Main) -> None:
        self._asked, self._entry, self._forward = asked, entry, main.forward
        self._compiler = getattr(asked.lowering, "compiler", None)

    def forward(self, module: Any, inputs: Sequence[Any], is_inference: bool) -> Any:
        return self._load(self._forward, module, inputs, True)

    def backward(self, part: str, module: Any, inputs: Sequence[Any]) -> Any:
        try:
            data = self._asked.store.part(self._entry, part)
            known = None if data is None else entries.read_backward(data)
        except (Unavailable, Broken):
            return None
        return self._load(known, module, inputs, False)

    def _load(self, known: Compiled | None, module: Any, inputs: Sequence[Any], is_forward: bool) -> Any:
        """The code of a graph. None if neither this machine nor the entry has it, or if it cannot be loaded: then the
        graph is compiled."""
        if known is None:
            return None

        lowering, how = self._asked.lowering, (known.key, known.guards, module, inputs, is_forward)
        try:
            is_in_entry = class_of_results(self._compiler) is not None
            found = None if is_in_entry else lowering.stored(*how)
            code = self._asked.store.part(self._entry, shared_code.name_of(known)) if found is None else None
            if code is None:
                return found
            if is_in_entry:
                return stored_results.put_in(self._compiler, code, inputs)
            shared_code.add(known, code)
            return lowering.stored(*how)
        except Exception:  # such as a file of the compiler's cache that another release wrote
            return None


class Keeper(Observer):
    """Saves a program when it is compiled, and each backward of it when that is. `entry` is known after a hit."""

    def __init__(self, asked: Question, observer: Observer, entry: Entry | None = None) -> None:
        self._asked, self._observer, self._entry = asked, observer, entry
        self._symbols: Sequence[Any] = ()
        self._began_ns = time.perf_counter_ns()
        self._parts: set[str] = set()
        self._reason = ""  # why the program was not saved

    def further(self) -> Observer:
        return Observer()  # a second derivative is not stored

    def after(self, stage: str, argument: Form, result: Form, elapsed_ns: int) -> None:
        if self._reason:
            return
        try:
            if isinstance(result, Program) and pipeline.ends(stage, result):
                self._save(result)
            elif isinstance(result, LoweredBackward):
                self._add(result)
            elif type(result) is FlatCall:
                self._symbols = stored_values.symbols_in(result.args)
        except Exception as error:  # a program must not fail because it cannot be saved
            self._reason = _why(error, "it could not be saved")
            if isinstance(error, Unavailable):
                warn_once(str(self._asked.store.folder), "unavailable", f"aotviz's cache is not used: {error}")
            key = self._asked.key
            self._observer.looked_up(LookUp(Outcome.BYPASS, key.digest, key.ingredients, self._reason))

    def _save(self, program: Program) -> None:
        lowered = program.lowered
        origins = lowered.with_history.at_hand.origins if isinstance(lowered, LoweredSplit) else {}
        forward, code = self._stored(lowered.compiled_forward)
        elapsed = time.perf_counter_ns() - self._began_ns
        call, stacks, key = lowered.call, self._asked.stacks, self._asked.key
        inputs = self._symbols, key.shared
        main, guards = entries.packed(call, origins, *inputs, stacks, forward, program.source, elapsed)
        variant = entries.digest(guards.hex()).hex()
        parts = {NAME: COMPILE_ID.sub("", call.name).encode("utf-8", "replace")}
        self._entry = entry = self._asked.store.save(key.digest, key.ingredients, variant, main, parts)
        self._asked.store.note_rehearsed(entry)
        self._complete(entry, forward, code)

    def _stored(self, compiled: Any) -> tuple[Compiled | None, bytes | None]:
        """Where the compiler has stored a graph, if it has; with its bytes, if the entry is to hold them."""
        own = stored_results.taken_out(getattr(self._asked.lowering, "compiler", None), compiled)
        if own is not None:
            return own
        found = stored_under(compiled)
        return None if found is None else Compiled(*found), None

    def _add(self, lowered: LoweredBackward) -> None:
        part, (compiled, code) = lowered.request.part, self._stored(lowered.compiled)
        if self._entry is not None and part not in self._parts:
            self._parts.add(part)
            self._asked.store.add_part(self._entry, part, msgspec.msgpack.encode(compiled))
            self._complete(self._entry, compiled, code)

    def _complete(self, entry: Entry, compiled: Compiled | None, code: bytes | None) -> None:
        """Keep the code of a graph in the entry, if a user's compiler made it, and what was recorded so far. Give
        Inductor's code to other machines."""
        store = self._asked.store
        if code is not None and compiled is not None:
            store.add_part(entry, shared_code.name_of(compiled), code)
        elif store.shared is not None:
            store.share(entry, shared_code.of_graph(compiled))
        recorded = self._observer.recorded()
        if recorded is not None:
            store.replace_part(entry, RECORDING, recorded)

    def has(self, part: str) -> bool:
        """Whether the entry has a backward, and so its recording too."""
        try:
            return self._entry is not None and self._asked.store.part(self._entry, part) is not None
        except Unavailable:
            return False
