"""Changes of decoded entries, by structure: of one value, of two, or of the bytes around them.

A tree is what msgpack decodes: None, numbers, texts, bytes, lists and dicts. A change is a function of a chance, a
place in the tree, and other trees from which it may take parts. It edits the tree in place.
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

MARKER = "MARKER"  # the file that an attack makes
ATTACK = f"__import__('os').system('touch {MARKER}')"
DEEP = 3_000

NUMBERS = [-1, 0, 1, 2, 3, 7, 10**6, 2**31, 2**63 - 1, -(2**63), 1.5, float("nan"), float("inf"), True, False]
TEXTS = [
    "",
    "x" * 100_000,
    "\n",
    "a\nb",
    "'",
    '"',
    f'x");{ATTACK}#',
    f"x');{ATTACK}#",
    f"x\n{ATTACK}\n",
    ATTACK,
    "__class__",
    "__reduce__",
    "__globals__",
    "a.b.c",
    "os.system",
    "float32",
    "int64",
    "complex64",
    "cpu",
    "cuda",
    "meta",
    "output",
    "mutation",
    "../../etc/passwd",
    "/tmp/x",
    "\udcff".encode("utf-8", "surrogatepass").decode("utf-8", "replace"),
]
VALUES: list[Any] = [None, [], {}, b"", b"\x00\x01", [None], [[]], {"a": 1}, ["t"], ["l"], ["d"], ["no"], ["..."]]
# Names that must never be found, as values of an entry.
ATTACKS: list[list[Any]] = [
    ["g", "torch.functional", "torch.os.system"],
    ["g", "torch.functional", "torch"],
    ["g", "torch", "os"],
    ["g", "torch", "load"],
    ["g", "torch", "save"],
    ["g", "torch", "from_file"],
    ["g", "os", "system"],
    ["g", "posix", "system"],
    ["g", "subprocess", "Popen"],
    ["g", "builtins", "eval"],
    ["g", "builtins", "exec"],
    ["g", "builtins", "__import__"],
    ["g", "builtins", "getattr"],
    ["g", "builtins", "open"],
    ["g", "builtins", "setattr"],
    ["g", "builtins", "map"],
    ["g", "operator", "attrgetter"],
    ["g", "_operator", "attrgetter"],
    ["g", "_operator", "methodcaller"],
    ["g", "_operator", "call"],
    ["g", "_operator", "setitem"],
    ["g", "math", "__loader__"],
    ["g", "torch._C", "_set_grad_enabled"],
    ["g", "torch._C", "import_ir_module"],
    ["g", "torch._C.TensorBase", "__class__"],
    ["g", "torch._C.TensorBase", "numpy"],
    ["g", "torch._C.TensorBase", "_make_wrapper_subclass"],
    ["g", "torch.nn.functional", "importlib"],
    ["g", "torch.nn.functional", "_torch"],
    ["g", "torch", "Tensor"],
    ["g", "aotviz.cache.store", "Store"],
    ["op", "load_library::__call__", ""],
    ["packet", "load_library::__self__"],
    ["op", "aten::from_file", ""],
    ["op", "aten::save", ""],
    ["op", "aten::__class__", "default"],
    ["op", "aten::add", "__class__"],
    ["op", "aten::add", "op"],
    ["op", "classes::x", ""],
    ["op", "import_module::y", ""],
    ["packet", "aten::from_file"],
    ["hop", "__class__"],
    ["hop", "_dir"],
    ["D", "aotviz.cache.store:Store", "/tmp", 1, None],
    ["D", "aotviz.cache.store:Entry", "a", "b", "c", b""],
    ["D", "subprocess:Popen", "touch"],
    ["D", "aotviz.ir.forms:Request"],
    ["E", "torch.x:Y", "a"],
    ["E", "http:HTTPStatus", "OK"],
    ["N", "torch.x:Y", 1],
    ["N", "urllib.parse:ParseResult", 1],
    ["N", "torch.return_types:max", 1, 2],
    ["K", "CallMethodKey", "__reduce__"],
    ["K", "CallMethodKey", "backward"],
    ["K", "GetAttrKey", "__class__"],
    ["W", "torch", "Tensor", None, ["t"], ["t"]],
    ["W", "torch.nn.parameter", "Parameter", None, ["t"], ["t"], "a", ["F", 0]],
    ["W", "torch.testing._internal.two_tensor", "TwoTensor", None, ["t"], ["t"], "a", ["F", 0], "b", ["F", 0]],
    ["W", "builtins", "type", None, ["t"], ["t"]],
    ["torch", "os"],
    ["torch", "Tensor"],
    ["torch", "__builtins__"],
    ["device", "privateuseone"],
    ["device", "cuda:99"],
    ["spec", ["g", "builtins", "eval"], None, ["leaf"]],
    ["spec", ["g", "collections", "OrderedDict"], ["l", "a"], ["leaf"]],
    ["M", True, "x", "y"],
    ["P", "Shard", 10**6],
    ["c", "float32", "cpu", [2**40], [1], b""],
    ["c", "float32", "cpu", [2], [2**60], b"\0" * 8],
    ["c", "int64", "cpu", [1], [1], b"\xff" * 8],
    ["int", "9" * 5000],
    ["int", "x"],
    ["range", 0, 2**62, 1],
    ["slice", None, None, 0],
    ["complex", "x", 1],
    ["z", -1, "x"],
    ["Y", "int", ["s", 10**6]],
    ["Y", "int", ["Pow", 10, ["Pow", 10, ["Pow", 10, 10]]]],
    ["Y", "int", ["PowByNatural", 7, 10**9]],
    ["Y", "object", 1],
    ["S", ["s", 0]],
    ["S", ["atom", "oo"]],
    ["S", ["__class__"]],
    ["F", -1],
    ["F", 10**6],
    ["F", "0"],
    ["n", -1],
    ["n", 0],
    ["n", 10**6],
    ["G", []],
    ["G", None],
    ["f", ["l"]],
    ["d", ["l"], 1],
]
# A node that calls this, under any name that might be believed.
_TARGETS = [one for one in ATTACKS if one[0] in {"g", "op", "packet", "hop"}]


@dataclass(frozen=True)
class Place:
    """A value in a tree: `holder[key]`."""

    holder: Any
    key: Any

    @property
    def value(self) -> Any:
        return self.holder[self.key]

    def put(self, value: Any) -> None:
        self.holder[self.key] = value


def places(tree: Any) -> list[Place]:
    found: list[Place] = []
    waiting = [tree]
    while waiting:
        holder = waiting.pop()
        keys: Iterator[Any] = iter(range(len(holder))) if isinstance(holder, list) else iter(holder)
        for key in keys:
            found.append(Place(holder, key))
            if isinstance(holder[key], (list, dict)):
                waiting.append(holder[key])
    return found


Change = Callable[[random.Random, Place, Sequence[Any]], None]


def copied(value: Any) -> Any:
    if isinstance(value, list):
        return [copied(one) for one in value]
    if isinstance(value, dict):
        return {key: copied(one) for key, one in value.items()}
    return value


def other_type(chance: random.Random, place: Place, trees: Sequence[Any]) -> None:
    place.put(copied(chance.choice([*VALUES, *NUMBERS[:6], *TEXTS[:6], *ATTACKS])))


def number(chance: random.Random, place: Place, trees: Sequence[Any]) -> None:
    known = place.value if isinstance(place.value, int) else 0
    near = [max(min(one, 2**63 - 1), -(2**63)) for one in (known - 1, known + 1, known + 2, -known)]
    place.put(chance.choice([*NUMBERS, *near]))


def text(chance: random.Random, place: Place, trees: Sequence[Any]) -> None:
    known = place.value if isinstance(place.value, str) else "x"
    lines = known.split("\n")
    edited = [known + "x", known[1:], known.upper(), "\n".join(reversed(lines)), "\n".join(lines[:-1])]
    if len(lines) > 1:  # the names of nodes
        chosen = chance.randrange(len(lines))
        edited += [
            "\n".join([*lines[:chosen], chance.choice([*lines, *TEXTS]), *lines[chosen + 1 :]]) for _ in range(5)
        ]
    place.put(chance.choice([*edited, *TEXTS]))


def raw(chance: random.Random, place: Place, trees: Sequence[Any]) -> None:
    """Bytes: opcodes of nodes, contents of constants, digests."""
    known = bytearray(place.value if isinstance(place.value, bytes) else b"\0\1\4")
    if known:
        known[chance.randrange(len(known))] = chance.choice([0, 1, 2, 3, 4, 5, 255])
    place.put(chance.choice([bytes(known), bytes(known), bytes(known), bytes(known[:-1]), bytes(known) + b"\1", b""]))


def removed(chance: random.Random, place: Place, trees: Sequence[Any]) -> None:
    del place.holder[place.key]


def doubled(chance: random.Random, place: Place, trees: Sequence[Any]) -> None:
    if isinstance(place.holder, list):
        place.holder.insert(place.key, copied(place.value))
    else:
        place.holder[f"{place.key}x" if isinstance(place.key, str) else place.key + 1] = copied(place.value)


def swapped(chance: random.Random, place: Place, trees: Sequence[Any]) -> None:
    other = chance.choice(list(range(len(place.holder))) if isinstance(place.holder, list) else list(place.holder))
    holder, key = place.holder, place.key
    holder[key], holder[other] = holder[other], holder[key]


def shuffled(chance: random.Random, place: Place, trees: Sequence[Any]) -> None:
    value = place.value
    if isinstance(value, list):
        fixed = 1 if value and isinstance(value[0], str) and chance.random() < 0.8 else 0
        rest = value[fixed:]
        chance.shuffle(rest)
        value[fixed:] = rest
    elif isinstance(value, dict):
        held = list(value.values())
        chance.shuffle(held)
        value.update(zip(list(value), held, strict=True))
    else:
        swapped(chance, place, trees)


def grafted(chance: random.Random, place: Place, trees: Sequence[Any]) -> None:
    """Another value from somewhere in this tree or another, of the same kind in most cases."""
    found = places(chance.choice(trees) if chance.random() < 0.4 else trees[0])
    value = place.value
    alike = [one for one in found if type(one.value) is type(value) and one.value != value]
    if isinstance(value, list) and value and isinstance(value[0], str):
        tagged = [one for one in alike if one.value and one.value[0] == value[0]]
        alike = tagged or alike
    chosen = chance.choice(alike if alike and chance.random() < 0.8 else found)
    place.put(copied(chosen.value))


def deep(chance: random.Random, place: Place, trees: Sequence[Any]) -> None:
    """Something that nests 3,000 deep."""
    tag = {name: msgspec.msgpack.encode(name) for name in ("a", "t", "l", "F", "G", "Not", "s", "Add", "leaf")}
    spec = msgspec.msgpack.encode(["spec", ["g", "builtins", "tuple"], None, ["leaf"]])[: -len(tag["leaf"]) - 1]
    symbol, fake, leaf = b"\x92" + tag["s"] + b"\0", b"\x92" + tag["F"] + b"\0", b"\x91" + tag["leaf"]
    opening, inner = chance.choice(
        [
            (b"\x91", b"\xc0"),
            (b"\x81" + tag["a"], b"\xc0"),
            (b"\x92" + tag["t"], b"\xc0"),
            (b"\x92" + tag["l"], fake),
            (b"\x92" + tag["G"], b"\xc0"),
            (b"\x92" + tag["Not"], symbol),
            (b"\x93" + tag["Add"] + b"\1", symbol),
            (spec, leaf),
        ]
    )
    depth = chance.choice([50, 300, 900, DEEP])
    place.put(msgspec.Raw(opening * depth + inner))


def attacked(chance: random.Random, place: Place, trees: Sequence[Any]) -> None:
    place.put(copied(chance.choice(ATTACKS)))


CHANGES: dict[str, Change] = {
    one.__name__: one
    for one in (other_type, number, text, raw, removed, doubled, swapped, shuffled, grafted, deep, attacked)
}
_FITTING: dict[type, list[Change]] = {
    int: [number, number, number, grafted],
    float: [number, grafted],
    bool: [number, grafted],
    str: [text, text, grafted, grafted],
    bytes: [raw, raw, grafted],
    list: [shuffled, grafted, attacked, grafted],
    dict: [shuffled, grafted],
}


def changed(chance: random.Random, tree: Any, trees: Sequence[Any], count: int = 1) -> str:
    """Change `tree` in place; returns what was done. `trees` begins with it."""
    done = []
    for _ in range(count):
        found = places(tree)
        while chance.random() < 0.5:  # else most changes are of the largest part
            first = chance.choice([one for one in found if one.holder is found[0].holder])
            found = [first, *(places(first.value) if isinstance(first.value, (list, dict)) else [])]
        place = chance.choice(found)
        fitting = _FITTING.get(type(place.value), [other_type])
        change = chance.choice(fitting) if chance.random() < 0.65 else chance.choice(list(CHANGES.values()))
        before = place.value
        try:
            change(chance, place, trees)
        except (LookupError, TypeError, ValueError):
            place.holder[place.key] = copied(chance.choice(ATTACKS))
        now = place.holder.get(place.key) if isinstance(place.holder, dict) else _at(place.holder, place.key)
        done.append(f"{change.__name__} {before!r:.60} -> {now!r:.60}")
    return "; ".join(done)


def _at(holder: list[Any], key: int) -> Any:
    return holder[key] if key < len(holder) else None


def target_attacked(chance: random.Random, graph: list[Any]) -> str:
    """A node of a stored graph calls what must not be found."""
    attack = chance.choice(_TARGETS)
    targets = graph[2]
    chosen = chance.randrange(len(targets))
    targets[chosen] = copied(attack)
    return f"target {attack}"


def wrapped(chance: random.Random, data: bytes) -> tuple[bytes, str]:
    """The bytes around a tree: cut off, extended, or a small file that is large when it is decompressed."""
    how = chance.choice(["cut", "more", "flip", "raw", "bomb"])
    packed = zlib.compress(data, 1)
    if how == "cut":
        return packed[: chance.randrange(len(packed))], how
    if how == "more":
        return zlib.compress(data + b"\xc0", 1), how
    if how == "flip":
        flipped = bytearray(data)
        flipped[chance.randrange(len(flipped))] ^= 1 << chance.randrange(8)
        return zlib.compress(bytes(flipped), 1), how
    if how == "raw":
        return chance.choice([b"", data, b"\xc1" * 100, zlib.compress(b"\xdd\xff\xff\xff\xff" * 50)]), how
    return BOMB, how


BOMB = zlib.compress(b"\x91" * (64 << 20), 9)
