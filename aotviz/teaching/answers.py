"""What a prediction may be, and whether it is right. Knows nothing of torch.

The right answer is a value that a program computed. From it follows what kind of answer is expected, and this is told
without telling the value. An answer of another kind is not wrong: the student is told what is expected, and it does not
count as a try.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import Any

Plain = bool | int | float | str | None | list[Any] | set[str]
NEAR = 0.01  # two digits of a number that is not whole are enough


def plain(value: Any) -> Plain:
    """A value as plain data: tensors and tuples become lists.

    Raises TypeError for a value that is no plain data, such as a function.

    >>> plain((1, [2.0, True])), plain({"b"})
    ([1, [2.0, True]], {'b'})
    """
    if isinstance(value, (bool, int, float, str)) or value is None:
        return value
    if hasattr(value, "tolist"):  # a tensor, an array
        return plain(value.tolist())
    if isinstance(value, (list, tuple)):
        return [plain(part) for part in value]
    if isinstance(value, (set, frozenset)):
        return {str(part) for part in value}
    raise TypeError(f"a {type(value).__name__} cannot be predicted: ask for a number, a list, a name, True or False")


def expected(right: Plain) -> str:
    """What kind of answer is expected, without the answer.

    >>> expected([[1.5, 2.0], [0.0, 1.0]]), expected(False), expected({"x"})
    ('2 lists of 2 numbers', 'True or False', "a set of names, such as {'a', 'b'}, or set()")
    """
    if isinstance(right, bool):
        return "True or False"
    if isinstance(right, int | float):
        return "a number"
    if isinstance(right, str):
        return "a text"
    if isinstance(right, set):
        return "a set of names, such as {'a', 'b'}, or set()"
    if isinstance(right, list):
        return f"a list of {_parts(right)}" if not _nested(right) else _lists(right)
    return "a value, or None"


def _nested(right: list[Any]) -> bool:
    return bool(right) and isinstance(right[0], list)


def _lists(right: list[Any]) -> str:
    return f"{len(right)} lists of {_parts(right[0])}" if not _nested(right[0]) else f"{len(right)} nested lists"


def _parts(right: list[Any]) -> str:
    kinds = {expected(part).removeprefix("a ") for part in right}
    kind = kinds.pop() if len(kinds) == 1 else "value"
    if kind == "True or False":
        return f"{len(right)} times True or False"
    return f"{len(right)} {kind}{'' if len(right) == 1 else 's'}"


def misunderstood(answer: Any, right: Plain, names: Collection[str]) -> str:
    """Why an answer is of another kind than the right one; "" if it can be compared.

    `names` are the names that a set may have.

    >>> misunderstood("yes", True, ())
    "expected True or False, and got 'yes'"
    >>> misunderstood({"y"}, {"x"}, ("x", "z"))
    'there is no variable `y`; the variables are x, z'
    """
    try:
        given = plain(answer)
    except Exception:  # of a tensor, which may have no elements to list
        return _other(answer, right)
    if isinstance(right, set):
        given = names_of(given)
        if not isinstance(given, set):
            return _other(answer, right)
        unknown = sorted(given - set(names))
        return f"there is no variable `{unknown[0]}`; the variables are {', '.join(names)}" if unknown else ""
    # None may be predicted for everything, because whether there is a value is a question too.
    return "" if None in (given, right) or _kind(given) == _kind(right) else _other(answer, right)


def _other(answer: Any, right: Plain) -> str:
    shown = repr(answer)
    return f"expected {expected(right)}, and got {shown if len(shown) < 60 else shown[:57] + '...'}"


def names_of(given: Plain) -> Plain:
    """A name, or a list of names, as a set of names; anything else as it is."""
    if isinstance(given, str):
        return {given}
    if isinstance(given, list) and all(isinstance(part, str) for part in given):
        return set(given)
    return given


def _kind(value: Plain) -> Any:
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, int | float):
        return "number"
    if isinstance(value, list):
        return [_kind(part) for part in value]
    return type(value).__name__


def agrees(answer: Any, right: Plain) -> bool:
    """Whether an answer says the same as the right one. Numbers that are not whole may be rounded to two digits.

    >>> agrees((1, 0.84), [1.0, 0.8415]), agrees(3, 4), agrees("x", {"x"})
    (True, False, True)
    """
    given = plain(answer)
    return _same(names_of(given) if isinstance(right, set) else given, right)


def _same(given: Plain, right: Plain) -> bool:
    if isinstance(given, list) and isinstance(right, list):
        return len(given) == len(right) and all(map(_same, given, right))
    if isinstance(given, bool) or isinstance(right, bool):
        return given is right
    if isinstance(given, int | float) and isinstance(right, int | float):
        if isinstance(right, int) or right.is_integer() or not math.isfinite(right):
            return given == right or (given != given and right != right)
        try:
            return math.isclose(given, right, rel_tol=NEAR, abs_tol=NEAR / 2)
        except OverflowError:  # an integer that is larger than any float
            return False
    return given == right


def shown(value: Plain) -> str:
    """A value as Python writes it, with four digits of a number.

    >>> shown([0.84147, 2, True]), shown({"b", "a"}), shown(set())
    ('[0.8415, 2, True]', "{'a', 'b'}", 'set()')
    """
    if isinstance(value, float):
        return f"{value:.4g}" if value == value and abs(value) != math.inf else str(value)
    if isinstance(value, list):
        return f"[{', '.join(map(shown, value))}]"
    if isinstance(value, set):
        return f"{{{', '.join(map(repr, sorted(value)))}}}" if value else "set()"
    return repr(value)
