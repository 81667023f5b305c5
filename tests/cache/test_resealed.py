"""Entries that were altered and sealed again: a miss with a reason, and never another function or an exception."""

from __future__ import annotations

import shutil
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch

import aotviz
from aotviz.__main__ import main
from aotviz.cache import entry
from aotviz.cache.entry import Main
from aotviz.cache.meshes import Meshes
from aotviz.cache.seals import REHEARSED
from aotviz.cache.store import Store
from aotviz.cache.values import Broken, Reader
from aotviz.torch_private.fake_tensors import mode_apart
from tests import processes
from tests.cache import resealed
from tests.cache.entry_mutations import ATTACKS, MARKER, places
from tests.cache.redis_server import Server

# Of the attacks, those that entries may name: what is wrong with them is where they stand.
ALLOWED = [
    ["g", "torch._C", "_set_grad_enabled"],
    ["g", "torch._C.TensorBase", "numpy"],
    ["N", "torch.return_types:max", 1, 2],
    ["K", "GetAttrKey", "__class__"],
    ["c", "int64", "cpu", [1], [1], b"\xff" * 8],
    ["range", 0, 2**62, 1],
    ["slice", None, None, 0],
    ["z", -1, "x"],
    ["P", "Shard", 10**6],
    ["device", "privateuseone"],
    ["device", "cuda:99"],
    ["torch", "Tensor"],
]
NEVER = [one for one in ATTACKS if one not in ALLOWED and one[0] in {"g", "op", "packet", "hop", "D", "E", "N", "W"}]


@pytest.mark.parametrize("attack", NEVER, ids=str)
def test_a_name_outside_of_the_table_is_never_found(attack: list[Any]) -> None:
    reader = Reader([[], [], []], [], [], mode_apart(), Meshes())
    with pytest.raises(Broken):
        reader.read(attack)


def multiplied(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return (x @ w).sin()


def called(f: Callable[..., Any], folder: Path) -> tuple[list[torch.Tensor], str, str]:
    """The results and gradients of a call, and the answer of the cache."""
    torch._dynamo.reset()
    torch.manual_seed(0)
    x, w = torch.randn(2, 3, requires_grad=True), torch.randn(3, 5, requires_grad=True)
    with aotviz.record() as recording:
        result = aotviz.compile(f, backend="eager", cache=str(folder))(x, w)
        result.sum().backward()
    assert x.grad is not None
    assert w.grad is not None
    lookups = recording.cache_lookups
    return [result.detach(), x.grad, w.grad], lookups["outcome"][0], lookups["reason"][0]


def altered(store: Store, change: Callable[[list[Any]], object]) -> None:
    """Change the only entry of a store, and seal it again."""
    kept = store.keys()
    ((key, variant),) = [(one.key, held.variant) for one in kept for held in store.held(one.key)]
    (known,) = store.entries(key)
    parts = {name: store.part(known, name) for name in store.held(key)[0].parts if name not in ("main", REHEARSED)}
    ingredients = store.ingredients(key)
    tree = msgspec.msgpack.decode(zlib.decompress(known.main))
    change(tree)
    store.clear()
    sound = {name: data for name, data in parts.items() if data is not None}
    store.save(key, ingredients, variant, zlib.compress(msgspec.msgpack.encode(tree)), sound)


def place(name: str) -> int:
    return Main.__struct_fields__.index(name)


def renamed(tree: list[Any]) -> None:
    """The names of another process, so that the digest of the wrapper is not compared."""
    tree[place("names")] = [f"{one}_" for one in tree[place("names")]]


def of_field(name: str, found: Callable[[Any], bool], instead: Any) -> Callable[[list[Any]], None]:
    """Replace each value inside a field of the form that is `found`."""

    def change(tree: list[Any]) -> None:
        renamed(tree)
        chosen = [one for one in places([tree[place("fields")][name]]) if found(one.value)]
        assert chosen
        for one in chosen:
            one.put(instead)

    return change


def fewer_results(tree: list[Any]) -> None:
    renamed(tree)
    spec = tree[place("fields")]["out_spec"]
    assert spec[0] == "spec"
    assert spec.pop() == ["leaf"]


def named_value(tree: list[Any]) -> None:
    renamed(tree)
    _, (_, _, _, _, _, _, values, *_) = tree[place("fields")]["backward_module"]
    values[0] = ["n"]  # instead of the number of a fake


def late_fake(tree: list[Any]) -> None:
    for layout in tree[place("fakes")][1][1:]:
        layout[0] = "no_dtype"


def gone_storage(tree: list[Any]) -> None:
    tree[place("fakes")][0][-1] = 10**6


ALTERATIONS: dict[str, Callable[[list[Any]], None]] = {
    "a node calls another operator": of_field(
        "forward_module", lambda v: v == ["op", "aten::mm", ""], ["op", "aten::mul", "Tensor"]
    ),
    "a node of the backward does": of_field(
        "backward_module", lambda v: v == ["op", "aten::mm", ""], ["op", "aten::add", "Tensor"]
    ),
    "a node calls a method with a list": of_field(
        "forward_module", lambda v: v == ["op", "aten::sin", ""], ["g", "torch._C.TensorBase", "numpy"]
    ),
    "a gradient has another size": of_field("tangents", lambda v: v == 5, 7),
    "a version that no tensor has": of_field("slots", lambda v: type(v) is int and v == 0, -(2**62)),
    "a number that takes years": of_field("tangents", lambda v: v == 5, ["Y", "int", ["Pow", 10, ["Pow", 10, 10]]]),
    "a saved value is said to be a name": named_value,
    "fewer results": fewer_results,
    "an input that is written for ever": of_field("meta", lambda v: type(v) is int and v == 0, 2**31),
    "a layout that is read late": late_fake,
    "a storage that is not there": gone_storage,
}


@pytest.mark.parametrize("change", ALTERATIONS.values(), ids=ALTERATIONS)
def test_what_does_not_fit_together_is_a_miss(change: Callable[[list[Any]], None], tmp_path: Path) -> None:
    expected = called(multiplied, tmp_path)[0]
    altered(Store(tmp_path), change)
    found, outcome, reason = called(multiplied, tmp_path)
    assert (outcome, bool(reason)) == ("miss", True)
    torch.testing.assert_close(found, expected)


def hooked(f: Callable[..., Any], folder: Path | bool) -> list[torch.Tensor]:
    """Gradients, with a hook on a result through which those of another flow."""
    torch._dynamo.reset()
    torch.manual_seed(0)
    x, w = torch.randn(3, 3, requires_grad=True), torch.randn(3, 3, requires_grad=True)
    first, second = aotviz.compile(f, backend="eager", cache=folder and str(folder))(x, w)
    first.register_hook(lambda gradient: gradient * 2)
    second.backward()
    assert x.grad is not None
    assert w.grad is not None
    return [x.grad, w.grad]


@pytest.mark.parametrize("change", ["gone", "wrong"])
def test_gradients_through_a_hook_do_not_depend_on_what_an_entry_says_of_the_trace(change: str, tmp_path: Path) -> None:
    def several(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = (x @ w).sin()
        return y, (y * w).sum()

    def origins(tree: list[Any]) -> None:
        known = tree[place("origins")]
        tree[place("origins")] = {} if change == "gone" else dict.fromkeys([*known, "primals_2"], "n")

    expected = hooked(several, tmp_path)
    altered(Store(tmp_path), origins)
    with aotviz.record() as recording:
        found = hooked(several, tmp_path)
    assert list(recording.cache_lookups["outcome"]) == ["hit"]
    torch.testing.assert_close(found, expected)


def test_a_sound_entry_that_was_sealed_again_is_found(tmp_path: Path) -> None:
    expected = called(multiplied, tmp_path)[0]
    altered(Store(tmp_path), renamed)
    found, outcome, reason = called(multiplied, tmp_path)
    assert (outcome, reason) == ("hit", "")
    torch.testing.assert_close(found, expected)


def test_an_entry_that_grows_without_bound_is_damaged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entry, "LONGEST", 1 << 20)
    with pytest.raises(Broken, match="more than 1 MB"):
        entry.read(zlib.compress(bytes(1 << 24)))


CALLING = """
import sys
from tests.cache.test_resealed import called, multiplied, torch
for folder in sys.argv[1:]:
    found, outcome, reason = called(multiplied, folder)
    torch.manual_seed(0)
    x, w = torch.randn(2, 3), torch.randn(3, 5)
    assert torch.allclose(found[0], (x @ w).sin())
    print(outcome, reason, sep="|")
"""
CALLS = [
    ["g", "torch.functional", "torch.os.system"],  # a module of a module
    ["g", "posix", "system"],  # where the function is
    ["g", "os", "system"],
    ["g", "builtins", "eval"],
    ["g", "builtins", "exec"],
    ["g", "_operator", "call"],
    ["op", "load_library::__call__", ""],  # an attribute of torch.ops
]


def answers(*folders: Path) -> list[tuple[str, str]]:
    """What the cache says of the program to a process that looks for it in each of these folders."""
    done = processes.run(["-c", CALLING, *folders])
    assert done.returncode == 0, done.stderr[-2000:]
    return [(outcome, reason) for outcome, _, reason in (line.partition("|") for line in done.stdout.splitlines())]


@pytest.mark.slow
def test_code_that_is_put_into_an_export_does_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exports whose graph calls a function of Python with a shell command are imported, and the program is run."""
    sound, command = tmp_path / "sound", f"touch {tmp_path / MARKER}"
    assert [outcome for outcome, _ in answers(sound, sound)] == ["miss", "hit"]
    folders = [tmp_path / f"ours{number}" for number in range(len(CALLS))]
    for folder, target in zip(folders, CALLS, strict=True):
        theirs = tmp_path / f"theirs{len(list(tmp_path.iterdir()))}"
        shutil.copytree(sound, theirs)

        def calls(tree: list[Any], target: list[Any] = target) -> None:
            graph = tree[place("fields")]["forward_module"][1]
            node = graph[3].index(graph[2].index(["op", "aten::sin", ""]))
            graph[2][graph[3][node]] = target
            graph[4][node] = [command]

        store, exported = Store(theirs), theirs / "exported.sqlite"
        altered(store, calls)
        store.export(exported)
        monkeypatch.setenv("AOTVIZ_CACHE_DIR", str(folder))
        assert main(["cache", "import", str(exported)]) == 0
        said = capsys.readouterr().out
        assert "trusts its maker" in said
        assert "added 1 new entry" in said
    for target, (outcome, reason) in zip(CALLS, answers(*folders), strict=True):
        assert outcome == "miss"
        assert reason.startswith("G: a graph is damaged")
        assert target[-2 if target[0] == "op" else -1] in reason
    assert not (tmp_path / MARKER).exists()


@pytest.mark.slow
@pytest.mark.parametrize(("lowering", "count"), [("eager", 80), ("inductor", 8)])
def test_mutants_of_entries_never_raise_crash_or_hang(
    lowering: str, count: int, server: Server, tmp_path: Path
) -> None:
    results = list(resealed.outcomes(tmp_path, lowering, server.url, 1, range(count)))
    assert len(results) == count
    assert [one for one in results if one.outcome in resealed.FAILURES] == []
    kinds = {one.outcome for one in results}
    assert kinds >= {"miss", "hit, same result"}  # else nothing was altered, or nothing was looked up
