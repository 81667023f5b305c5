"""`aotviz.explore_inputs`: moving the inputs of a function in memory, by its controls and by its methods."""

from __future__ import annotations

import asyncio
from asyncio import events
from collections.abc import Iterator
from typing import Any

import pytest
import torch

import aotviz
from aotviz.comparing.exploring import STILL_S, Explorer
from aotviz.comparing.layouts import layouts_of, moved, tensors_of
from aotviz.torch_private.tensors import storage_key


@pytest.fixture(autouse=True)
def no_loop_of_playwrights() -> Iterator[None]:
    """A worker that has run a browser test keeps Playwright's event loop, and a script would look like a kernel."""
    running = events._get_running_loop()
    events._set_running_loop(None)
    yield
    events._set_running_loop(running)


def double(a: torch.Tensor, b: torch.Tensor, factor: float = 2.0) -> torch.Tensor:
    a.mul_(factor)
    return a + b


def explorer() -> Explorer:
    return aotviz.explore_inputs(double, torch.arange(4.0), b=torch.ones(4))


def control(found: Explorer, name: str, description: str) -> Any:
    """A control as a reader sees it: under the argument's name, by its own."""
    boxes = [box for box in found.children[0].children if hasattr(box, "children")]  # beside the names of the sliders
    (box,) = (box for box in boxes if f"<code>{name}</code>" in box.children[0].value)
    (one,) = (one for one in box.children[1:] if one.description == description)
    return one


def test_a_slider_moves_an_input_and_the_wrapper_follows() -> None:
    found = explorer()
    assert "base_of" not in found.comparison.sources["now"]
    control(found, "b", "memory").value = "a"
    control(found, "b", "offset").value = 2
    assert "base_of(a)" in found.comparison.sources["now"]
    assert "base_of" not in found.comparison.sources["given"], "the inputs as given stay"
    assert found.comparison.sentences[0].startswith(
        "With `given`, no inputs share memory; with `now`, `a` and `b` share a base of 6 elements"
    )
    now = found.tensors()
    assert storage_key(now["a"]) == storage_key(now["b"])
    assert now["b"].tolist() == [2.0, 3.0, 0.0, 0.0], "the content of the memory that it is in"
    found.reset()
    assert control(found, "b", "offset").value == 0
    assert found.comparison.sentences == []


def test_strides_dtype_grad_and_sameness() -> None:
    found = explorer()
    control(found, "b", "stride 0").value = 3
    assert found.tensors()["b"].stride() == (3,)
    control(found, "b", "dtype").value = torch.float64
    control(found, "b", "requires_grad").value = True
    assert "with `now`, the program is for training" in "\n".join(found.comparison.sentences)
    assert "with `now`, `b` is float64[4] with stride [3] and requires grad" in found.comparison.sentences[-1]
    control(found, "b", "memory").value = "=a"
    now = found.tensors()
    assert now["b"] is now["a"]
    assert control(found, "b", "offset").disabled
    assert "`a` and `b` are one tensor" in found.comparison.sentences[0]


def test_an_error_is_said_and_nothing_is_lost() -> None:
    found = explorer()
    control(found, "b", "offset").value = 1
    before = found.comparison
    control(found, "b", "dtype").value = torch.int64
    control(found, "b", "requires_grad").value = True
    assert found.error.startswith("RuntimeError: only Tensors of floating point")
    assert "only Tensors of floating point" in found.children[1].children[1].value
    assert found.comparison.names == before.names
    assert found.comparison.sources["now"], "the last result is still there"
    control(found, "b", "requires_grad").value = False
    assert found.error == ""
    assert found.children[1].children[1].value == ""


def test_a_call_that_fails_is_shown_in_its_column() -> None:
    def picky(x: torch.Tensor) -> torch.Tensor:
        if x.stride() == (0,):
            raise ValueError("every element is the same")
        return x.sin()

    found = aotviz.explore_inputs(picky, torch.ones(4))
    control(found, "x", "stride 0").value = 0
    assert found.error == "", "it is no error of the widget"
    assert found.comparison.errors == {"now": "ValueError in the stage `metadata`: every element is the same"}
    assert found.comparison.sources["given"]
    control(found, "x", "stride 0").value = 2
    assert found.comparison.errors == {}


def test_the_workbench_hears_of_each_move_and_moves_close_together_are_one(monkeypatch: pytest.MonkeyPatch) -> None:
    found = explorer()
    sent: list[Any] = []
    monkeypatch.setattr(found.workbench, "send", lambda content, buffers=None: sent.append(content))
    found.workbench._bytes_of(["index"])

    async def drag() -> None:
        for offset in range(6):
            control(found, "b", "offset").value = offset
        assert sent == [], "it waits until the slider is still"
        while not sent:
            await asyncio.sleep(STILL_S)

    asyncio.run(drag())
    assert sent == [{"changed": True}]
    assert found.comparison["now"].id == "now 1", "six moves, one compilation"
    assert "at offset 5" in found.comparison.sentences[-1]


def test_inputs_are_not_changed_and_other_arguments_stay() -> None:
    a, b = torch.arange(4.0), torch.ones(4)
    found = aotviz.explore_inputs(double, a, b, factor=3.0)
    found.move("b", memory="a", offset=1)
    assert a.tolist() == [0, 1, 2, 3]
    assert b.tolist() == [1, 1, 1, 1]
    assert "3.0" in str(found.comparison["now"].graph("inference"))


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ((torch.ones(2),), "double cannot be called with these arguments: missing a required argument: 'b'"),
        ((1.0, 2.0), "none of the arguments a, b is a tensor in memory"),
    ],
)
def test_bad_arguments_are_named(args: tuple[Any, ...], words: str) -> None:
    with pytest.raises(TypeError, match=words):
        aotviz.explore_inputs(double, *args)


def test_memory_is_left_and_joined_in_any_order() -> None:
    m = torch.arange(8.0)
    layouts = layouts_of({"a": m[:4], "b": m[4:], "c": torch.ones(2)})
    contents = {"a": m[:4], "b": m[4:], "c": torch.ones(2)}

    def together(*moves: tuple[str, dict[str, Any]]) -> set[frozenset[str]]:
        now = layouts
        for name, changes in moves:
            now = moved(now, name, **changes)
        made = tensors_of(now, contents)
        keys = {name: storage_key(tensor) for name, tensor in made.items()}
        return {frozenset(n for n in keys if keys[n] == key) for key in keys.values()}

    alone = {frozenset("a"), frozenset("b"), frozenset("c")}
    assert together() == {frozenset("ab"), frozenset("c")}
    assert together(("a", {"memory": "b"})) == {frozenset("ab"), frozenset("c")}
    assert together(("a", {"memory": "a"})) == alone
    assert together(("b", {"memory": "b"})) == alone
    assert together(("c", {"memory": "b"})) == {frozenset("abc")}
    assert together(("c", {"memory": "b"}), ("a", {"memory": "a"})) == {frozenset("a"), frozenset("bc")}
    assert together(("a", {"same_as": "c"})) == {frozenset("ac"), frozenset("b")}
    assert together(("a", {"same_as": "c"}), ("c", {"same_as": "a"})) == {frozenset("ac"), frozenset("b")}
