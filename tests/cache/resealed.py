"""A fuzzer of entries that were altered and sealed again: `python -m tests.cache.resealed --n 20000`.

An entry of each program of entry_programs.py is decoded, changed by structure (entry_mutations.py), sealed as someone
would who may write to the cache, and put back through one of the doors by which entries come: this machine's file, a
Redis server, or an import. Then a user calls the program: look-up, forward, backward, forward.

Whatever the entry says, that call must give a result: the right one after a miss, or after a hit, or that of the other
program that the entry now is. That program may raise itself, where it has an assertion (`torch._check`) that this data
does not fulfil: this is a result of its own kind. Else the call must not raise, crash or hang, and no name may be
resolved that is not in the table of names.py. Workers run the mutants, so that a crash is an outcome. A mutant is known
by its number: `--only 17`.
"""

from __future__ import annotations

import argparse
import builtins
import collections
import contextlib
import dataclasses
import inspect
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import warnings
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from types import MethodDescriptorType, WrapperDescriptorType
from typing import Any

import msgspec
import torch
from torch._ops import HigherOrderOperator, OpOverload, OpOverloadPacket

import aotviz
from aotviz.cache import captured_graphs, names, switch
from aotviz.cache.entry import Main
from aotviz.cache.seals import CODE, REHEARSED, entry_id
from aotviz.cache.store import Entry, Store
from aotviz.frontends import cached, dynamo_graphs
from aotviz.frontends.backend import Backend
from aotviz.ir import dynamo_capture
from aotviz.ir.lookup import LookUp, Outcome
from aotviz.lowerings import lowering_named, run_graph
from aotviz.recorder.sessions import Session
from aotviz.torch_private import stored_values
from tests.cache import entry_mutations
from tests.cache.entry_programs import PROGRAMS, Program, alike, run
from tests.cache.redis_server import Server

DOORS = ("local", "Redis", "import")
SECONDS = 30  # that a mutant has
MEMORY_BYTES = 24 << 30  # of addresses
NAMES, FIELDS = map(Main.__struct_fields__.index, ("names", "fields"))  # their places in an entry
CHUNK = 1000  # mutants of one worker
MARKER = entry_mutations.MARKER
INDUCTOR = os.environ.get("TORCHINDUCTOR_CACHE_DIR", "/no folder")
WATCHED = tuple(
    "os.exec os.fork os.posix_spawn os.spawn os.startfile os.system os.remove os.rename os.truncate os.kill os.chmod "
    "os.symlink os.link subprocess. socket. shutil. ctypes. pickle. webbrowser. urllib. pty. sqlite3.load".split()
)


class Base(msgspec.Struct):
    """An entry that was saved, and its parts."""

    program: str
    lowering: str
    key: str
    variant: str
    ingredients: dict[str, str]
    main: bytes
    parts: dict[str, bytes]


class Mutant(msgspec.Struct):
    main: bytes
    parts: dict[str, bytes]
    what: str
    recorded: bool = False  # the user's call is recorded
    whole: bool = False  # a miss goes on, and compiles


def mutant(chance: random.Random, base: Base, others: Sequence[Base]) -> Mutant:
    """A change of the main part, or of another; of half of the mains another process's names are, so that the digest of
    the wrapper is not compared."""
    parts = dict(base.parts)
    made = Mutant(base.main, parts, "", whole=chance.random() < 0.02)
    other = chance.choice(others)
    data = [name for name in parts if not name.startswith(CODE)]  # what is run is taken or refused as a whole
    if data and chance.random() < 0.1:
        name = chance.choice(data)
        tree = [parts[name] if name in (cached.RECORDING, cached.NAME) else msgspec.msgpack.decode(parts[name])]
        there = other.parts.get("backward")
        trees = [tree, [msgspec.msgpack.decode(there)] if there else tree]
        what = entry_mutations.changed(chance, tree, trees)
        held = tree[0] if tree else None
        parts[name] = held if isinstance(held, bytes) else msgspec.msgpack.encode(held)
        made.what, made.recorded = f"part {name}: {what}", name == cached.RECORDING
        return made
    packed = zlib.decompress(base.main)
    if chance.random() < 0.02:
        made.main, made.what = entry_mutations.wrapped(chance, packed)
        return made
    tree = msgspec.msgpack.decode(packed)
    if chance.random() < 0.5:
        tree[NAMES] = [f"{one}_" for one in tree[NAMES]]
    graphs = [one.value for one in entry_mutations.places(tree) if _is_graph(one.value)]
    if graphs and chance.random() < 0.1:
        made.what = entry_mutations.target_attacked(chance, chance.choice(graphs)[1])
    else:
        there = msgspec.msgpack.decode(zlib.decompress(other.main))
        if chance.random() < 0.7:  # one field of the form
            name = chance.choice(list(tree[FIELDS]))
            held = [tree[FIELDS].pop(name)]
            made.what = f"{name}: {entry_mutations.changed(chance, held, [held, there[FIELDS]])}"
            tree[FIELDS] |= {name: held[0]} if held else {}
        else:
            made.what = entry_mutations.changed(chance, tree, [tree, there], chance.choice([1, 1, 1, 2, 4]))
    made.main = zlib.compress(msgspec.msgpack.encode(tree), 1)
    return made


def _is_graph(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 2 and value[0] == "G" and isinstance(value[1], list)


# What a worker does


class Missed(BaseException):
    """The cache has answered. What follows is a compilation as without an entry, and most mutants leave it out."""


class Hung(BaseException):
    pass


@dataclass
class Ready:
    """A program, as one process calls it."""

    run: Callable[[bool], list[Any]]  # of the compiled program; whether it is recorded
    expected: list[Any]


def ready(name: str, lowering: str, folder: Path) -> Ready:
    """A program, compiled anew at each run, by a process with a folder of a cache."""
    program = PROGRAMS[name]
    backend = "inductor" if lowering == "inductor" else "eager"
    if program.door == "graph":
        about, given = as_captured(program)

        def of_graph(recorded: bool) -> list[Any]:
            session = Session(recorded, name)
            compiled = Backend(lowering_named(backend), {"cache": str(folder)}, session).restored(about, "")
            return run(program, compiled, given)

        return Ready(of_graph, run(program, dynamo_graphs.connected(about.module), given))
    if program.door == "dynamo":

        def by_dynamo(recorded: bool) -> list[Any]:
            torch._dynamo.reset()
            with torch._dynamo.config.patch(program.config):
                compiled = aotviz.compile(program.f, backend=backend, cache=str(folder), record=recorded)
                return run(program, compiled, program.inputs)

        return Ready(by_dynamo, run(program, program.f, program.inputs))

    def of_function(recorded: bool) -> list[Any]:
        compiled = aotviz.aot_function(program.f, run_graph, cache=str(folder), record=recorded)
        return run(program, compiled, program.inputs)

    return Ready(of_function, run(program, program.f, program.inputs))


def as_captured(program: Program) -> tuple[Any, Callable[[], list[Any]]]:
    """Dynamo's graph of a program, as a later process gets it, and what makes the inputs of this graph."""
    found: list[Any] = []

    def backend(module: Any, inputs: Any) -> Any:
        found.append(captured_graphs.read(captured_graphs.packed(dynamo_capture.captured_graph(module, None))))
        return module.forward

    torch._dynamo.reset()
    arguments = inspect.signature(program.f).parameters
    with contextlib.nullcontext() if program.grad else torch.no_grad():
        torch.compile(program.f, backend=backend, dynamic=program.dynamic or None, fullgraph=True)(*program.inputs())
    (about,) = found
    sources = [node.meta["grapharg"].source.name for node in about.module.graph.find_nodes(op="placeholder")]

    def given() -> list[Any]:
        values = {"L": dict(zip(arguments, program.inputs(), strict=True))}
        return [eval(source, values) for source in sources]

    return about, given


class Audit:
    """What Python does while it is on, and names that are resolved to what no table of ours has."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        self.clean: set[str] = set()  # what a sound entry makes Python do
        self._on = self.is_clean = False
        sys.addaudithook(self._event)
        for owner, function in ((names, "named"), (names, "class_named"), (stored_values, "operator_named")):
            setattr(owner, function, self._checked(getattr(owner, function)))

    def __enter__(self) -> None:
        self.seen, self._on = [], True

    def __exit__(self, *raised: object) -> None:
        self._on = False

    def _event(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self._on and (event.startswith(WATCHED) or event == "open") and _is_strange(event, arguments):
            self._note(f"{event} {arguments!r:.200}")

    def _checked(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def checked(*arguments: Any) -> Any:
            found = function(*arguments)
            if self._on and not _is_known(found):
                self._note(f"{function.__name__}{arguments} is {found!r:.200}")
            return found

        return checked

    def _note(self, what: str) -> None:
        if self.is_clean:
            self.clean.add(what)
        elif what not in self.clean:
            self.seen.append(what)


def _is_strange(event: str, arguments: tuple[Any, ...]) -> bool:
    """Whether this is no reading of a file, and no work of Inductor or of an import on their own files."""
    text = str(arguments)
    if MARKER in text:
        return True
    if INDUCTOR in text or "__pycache__" in text:
        return False
    flags = arguments[2] if event == "open" else os.O_RDWR
    return not isinstance(arguments[0], int) and bool(isinstance(flags, int) and flags & (os.O_WRONLY | os.O_RDWR))


def _is_known(found: Any) -> bool:
    """Whether this is of a kind that entries may name, by other rules than those of names.py."""
    if isinstance(found, (OpOverload, OpOverloadPacket, HigherOrderOperator)):
        return "from_file" not in str(found)
    if found in HARMLESS:
        return True
    if isinstance(found, type):
        ours = found.__module__.startswith("aotviz.") and dataclasses.is_dataclass(found)
        return ours or issubclass(found, (torch.Tensor, Enum)) or hasattr(found, "_fields")
    if isinstance(found, (MethodDescriptorType, WrapperDescriptorType)):
        return issubclass(torch.Tensor, found.__objclass__)
    if found in vars(torch).values():
        return found not in (torch.load, torch.save, torch.from_file, torch.compile)
    where = getattr(found, "__module__", None)
    return where in ("math", "_operator", "torch.functional", "torch.nn.functional") or "_nn" in str(where)


HARMLESS: list[Any] = [getattr(builtins, name) for name in names._BUILTINS] + [
    type(None),
    torch.Tensor.__base__,
    torch._C._set_grad_enabled,
]


class Worker:
    """Calls mutants in this process. `url` is of a Redis server."""

    def __init__(self, folder: Path, lowering: str, url: str) -> None:
        torch.set_num_threads(1)
        warnings.simplefilter("ignore")
        self.lowering, self.folder, self.url = lowering, folder, url
        self.local, self.maker = self._store("local", ""), Store(folder / "maker")
        self.through = self._store("through", url)
        assert self.through.shared is not None
        self.shared = self.through.shared
        self.ready: dict[tuple[str, str], Ready] = {}
        self.told: list[LookUp] = []
        self.whole = True
        signal.signal(signal.SIGALRM, _hung)
        looked_up = cached._looked_up

        def watched(*arguments: Any) -> Any:
            program, told = looked_up(*arguments)
            self.told.append(told)
            if program is None and not self.whole:
                raise Missed
            return program, told

        cached._looked_up = watched  # type: ignore[assignment]
        self.audit = Audit()

    def _store(self, name: str, url: str) -> Store:
        os.environ[switch.URL] = url
        found = switch.store_for(str(self.folder / name))
        assert found is not None
        return found

    def program(self, base: Base, door: str) -> Ready:
        """The program of an entry, which is found with this entry as it was saved."""
        known = self.ready.get((base.program, door))
        if known is None:
            folder = self.folder / ("through" if door == "Redis" else "local")
            known = self.ready[base.program, door] = ready(base.program, self.lowering, folder)
            sound = Mutant(base.main, base.parts, "", True)
            for _ in range(2):  # what is imported when it is first needed is no event of the second call
                away = self.put(base, sound, door)
                self.told, self.audit.is_clean = [], True
                with self.audit:
                    found = known.run(True)
                self.audit.is_clean = False
                answers = [(one.outcome.name, one.reason) for one in self.told]
                assert answers == [("HIT", "")], f"the sound entry of {base.program}: {answers}"
                assert alike(found, known.expected), base.program
                away()
        return known

    def base(self, name: str) -> Base:
        """The entry of a program, compiled here."""
        self.local.clear()
        os.environ[switch.URL] = ""
        self.whole = True
        program = ready(name, self.lowering, self.folder / "local")
        found = program.run(True)
        assert alike(found, program.expected), name
        kept = self.local.keys()
        ((key, variant),) = [(one.key, held.variant) for one in kept for held in self.local.held(one.key)]
        (entry,) = self.local.entries(key)
        parts = {
            part: self.local.part(entry, part)
            for part in self.local.held(key)[0].parts
            if part not in ("main", REHEARSED)
        }
        known = {part: data for part, data in parts.items() if data is not None}
        self.told = []
        assert alike(program.run(True), program.expected), name
        assert [one.outcome for one in self.told] == [Outcome.HIT], (
            name,
            [(one.outcome.name, one.reason) for one in self.told],
        )
        base = Base(name, self.lowering, key, variant, self.local.ingredients(key), entry.main, known)
        self.local.clear()
        return base

    def put(self, base: Base, mutant: Mutant, door: str) -> Callable[[], None]:
        """Bring a mutant to where the program is looked for. Returns what takes it away."""
        what = (base.key, base.ingredients, base.variant, mutant.main, mutant.parts)
        entry = Entry(entry_id(base.key, base.variant), base.key, base.variant, mutant.main)
        os.environ[switch.URL] = self.url if door == "Redis" else ""
        if door == "local":
            self.local.save(*what)
            return lambda: self.local.discard(entry)
        if door == "Redis":
            self.shared.save(entry, base.ingredients, mutant.parts)
            return lambda: self.through.discard(entry)
        self.maker.save(*what)
        exported = self.folder / "exported.sqlite"
        self.maker.export(exported)
        self.local.import_(exported)

        def away() -> None:
            self.maker.discard(entry)
            self.local.discard(entry)

        return away

    def outcome(self, base: Base, mutant: Mutant, door: str) -> tuple[str, str]:
        """(outcome, detail) of a user's call with a mutant in the cache."""
        program = self.program(base, door)
        away = self.put(base, mutant, door)
        self.told, self.whole = [], mutant.whole
        signal.setitimer(signal.ITIMER_REAL, SECONDS)
        found: list[Any] | None = None
        try:
            with self.audit:
                found = program.run(mutant.recorded)
        except Missed:
            pass
        except Hung:
            return "hang", ""
        except Exception as error:
            checked = "Runtime assertion failed for expression" in str(error) and self.told
            if checked and self.told[0].outcome is Outcome.HIT:
                return "hit, its assertion", ""
            return "exception", "".join(traceback.format_exception(error))[-4000:]
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            away()
            if mutant.whole:
                self.local.clear()
                self.through.clear()
                self.shared.discard(Entry("", base.key, base.variant, mutant.main))
        if self.audit.seen:
            return "resolved", repr(self.audit.seen)
        first = self.told[0]
        if first.outcome is Outcome.HIT:
            assert found is not None
            return "hit, same result" if alike(found, program.expected) else "hit, other result", ""
        if found is not None and not alike(found, program.expected):
            return "wrong after a miss", first.reason
        return "miss", first.reason or first.outcome.name


def _hung(*signalled: Any) -> None:
    raise Hung


def work(folder: Path, lowering: str, url: str, seed: int, numbers: Sequence[int]) -> None:
    """Run mutants, and write a line when each begins and when it ends."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    bases = msgspec.msgpack.decode((folder / f"{lowering}.bases").read_bytes(), type=list[Base])
    here = folder / f"worker {os.getpid()}"
    here.mkdir()
    os.chdir(here)
    worker = Worker(here, lowering, url)
    for number in numbers:
        chance = random.Random(f"{seed} {lowering} {number}")
        base, door = bases[number % len(bases)], DOORS[number // len(bases) % len(DOORS)]
        made = mutant(chance, base, bases)
        worker.program(base, door)
        _say({"number": number, "program": base.program, "door": door, "what": made.what})
        began = time.perf_counter()
        outcome, detail = worker.outcome(base, made, door)
        if Path(MARKER).exists():
            outcome, detail = "resolved", "the marker is there"
            Path(MARKER).unlink()
        _say({"number": number, "outcome": outcome, "detail": detail, "seconds": time.perf_counter() - began})
    os.chdir(folder)
    shutil.rmtree(here)


def _say(line: dict[str, Any]) -> None:
    print("@" + json.dumps(line), flush=True)


# What runs the workers


@dataclass
class Result:
    number: int
    lowering: str
    program: str
    door: str
    what: str
    outcome: str
    detail: str = ""
    seconds: float = 0.0


def fuzz(folder: Path, lowering: str, url: str, seed: int, numbers: Sequence[int]) -> Iterator[Result]:
    """The outcomes of mutants. A worker that ends is an outcome, and the next one goes on."""
    left = list(numbers)
    while left:
        command = _command("--worker", folder, lowering, url)
        command += ["--seed", str(seed), "--only", ",".join(map(str, left[:CHUNK]))]
        errors = (folder / "errors").open("w+")
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True, env=_environment(folder))
        assert process.stdout is not None
        begun: dict[str, Any] | None = None
        timer = threading.Timer(0, process.kill)
        for line in process.stdout:
            if not line.startswith("@"):
                continue
            said = json.loads(line[1:])
            timer.cancel()
            if "outcome" not in said:
                begun = said
                timer = threading.Timer(2 * SECONDS, process.kill)
                timer.start()
                continue
            assert begun is not None
            left.remove(said["number"])
            yield Result(lowering=lowering, **{**begun, **said})
            begun = None
        timer.cancel()
        code = process.wait()
        if begun is not None:
            left.remove(begun["number"])
            errors.seek(0)
            kind = "hang" if code == -signal.SIGKILL else "crash"
            yield Result(lowering=lowering, **begun, outcome=kind, detail=f"{code}\n{errors.read()[-2000:]}")
        elif code:
            errors.seek(0)
            raise AssertionError(errors.read()[-4000:])


def make_bases(folder: Path, lowering: str, url: str) -> None:
    worker = Worker(folder / f"making {lowering}", lowering, url)
    wanted = [name for name, program in PROGRAMS.items() if lowering in program.lowerings]
    bases = []
    for name in wanted:
        print(lowering, name, file=sys.stderr)
        bases.append(worker.base(name))
    (folder / f"{lowering}.bases").write_bytes(msgspec.msgpack.encode(bases))


SHARES = {"eager": 0.85, "inductor": 0.15}
FAILURES = "exception", "resolved", "wrong after a miss", "crash", "hang"


def table(results: Sequence[Result]) -> str:
    """Outcomes by lowering and door, in Markdown."""
    kinds = ["miss", "hit, same result", "hit, other result", "hit, its assertion", *FAILURES]
    rows = [["lowering", "door", "mutants", *kinds], ["---"] * (3 + len(kinds))]
    pairs = sorted({(one.lowering, one.door) for one in results})
    for lowering, door in [*pairs, ("all", "all")]:
        of_pair = [one for one in results if (lowering, door) in {(one.lowering, one.door), ("all", "all")}]
        counted = collections.Counter(one.outcome for one in of_pair)
        rows.append([lowering, door, f"{len(of_pair):,}", *(f"{counted[kind]:,}" for kind in kinds)])
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def outcomes(folder: Path, lowering: str, url: str, seed: int, numbers: Sequence[int]) -> Iterator[Result]:
    """The outcomes of mutants of the entries that lie in `folder`; they are made if they do not."""
    if not (folder / f"{lowering}.bases").exists():
        subprocess.run(_command("--bases", folder, lowering, url), check=True, env=_environment(folder))
    yield from fuzz(folder, lowering, url, seed, numbers)


def _command(what: str, folder: Path, lowering: str, url: str) -> list[str]:
    return [sys.executable, "-m", "tests.cache.resealed", what, str(folder), "--lowering", lowering, "--url", url]


def _environment(folder: Path) -> dict[str, str]:
    return {**os.environ, "TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor")}


def report(given: argparse.Namespace, only: Sequence[int]) -> None:
    """Run mutants, print those that fail as they come, and the table."""
    folder = Path(given.folder or tempfile.mkdtemp(prefix="resealed"))
    folder.mkdir(exist_ok=True)
    shares = {given.lowering: 1.0} if given.lowering else SHARES
    server = Server(folder)
    found: list[Result] = []
    try:
        with open(given.log or os.devnull, "w") as log:
            for lowering, share in shares.items():
                numbers = only or range(given.first, given.first + round(given.n * share))
                for one in outcomes(folder, lowering, server.url, given.seed, numbers):
                    found.append(one)
                    print(json.dumps(dataclasses.asdict(one)), file=log, flush=True)
                    if only or one.outcome in FAILURES:
                        print(f"{one.lowering} {one.number} ({one.program}, {one.door}): {one.outcome} of {one.what}")
                        print(one.detail[-700:], flush=True)
    finally:
        server.kill()
    print(table(found))


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--n", type=int, default=1000)
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--first", type=int, default=0, help="the number of the first mutant")
    options.add_argument("--lowering", default="", choices=["", *SHARES])
    options.add_argument("--only", default="", help="numbers of mutants")
    options.add_argument("--folder", default="", help="entries that were made before are there")
    options.add_argument("--log", default="", help="a file for a line of JSON for each mutant")
    options.add_argument("--worker", default="", help=argparse.SUPPRESS)
    options.add_argument("--bases", default="", help=argparse.SUPPRESS)
    options.add_argument("--url", default="", help=argparse.SUPPRESS)
    given = options.parse_args()
    only = [int(one) for one in given.only.split(",") if one]
    if given.bases:
        make_bases(Path(given.bases), given.lowering, given.url)
    elif given.worker:
        work(Path(given.worker), given.lowering, given.url, given.seed, only)
    else:
        report(given, only)


if __name__ == "__main__":
    main()
