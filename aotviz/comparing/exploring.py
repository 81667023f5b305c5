"""`aotviz.explore_inputs`: a widget with a slider for each number of the inputs' layouts.

The widget compiles the function again when a control is moved, and shows the result beside the compilation of the
inputs as they were given. The controls move faster than the pipeline, so it waits until they have been still for a
moment. All of this happens in the kernel's main shell, between two cells: while a cell runs, another compilation would
see the settings that the cell has changed.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Mapping
from html import escape
from typing import Any

import ipywidgets
import torch

from aotviz.comparing import layouts
from aotviz.comparing.compared_inputs import Comparison, comparison, compiled, name_of
from aotviz.comparing.layouts import Layout
from aotviz.comparing.names import BOX, Names
from aotviz.reading.recording import Recording
from aotviz.recording.compilation import Compilation
from aotviz.recording.holders import Replaceable
from aotviz.widgets import replies
from aotviz.widgets.workbench import Workbench

STILL_S = 0.15  # that the controls must be still before the function is compiled
MOST_STEP = 4  # at least up to here a stride can be moved
MOST_OFFSET = 8  # the same for an offset
OWN, OF, SAME = "its own", "that of {}", "is {} itself"  # where a tensor lies


def explore_inputs(fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Explorer:
    """A widget in which the inputs of `fn` can be moved in memory, to see what the pipeline makes of them.

    Each tensor argument has controls for its memory (its own, or that of another argument), its offset, its strides,
    its dtype, and whether it requires grad. After a move, the function is compiled again, and its memory, its wrapper
    and its graph are shown beside those of the inputs as they were given. Only copies are used.

    Raises:
        TypeError: `fn` cannot be called with these arguments, none of them is a tensor, or one cannot be copied.

    >>> import torch, aotviz
    >>> def double(a, b):
    ...     a.mul_(2)
    ...     return a + b
    >>> explorer = aotviz.explore_inputs(double, torch.ones(4), b=torch.ones(4))
    >>> explorer.move("b", memory="a", offset=2)
    >>> explorer.comparison.sentences[0].split(": ")[0]
    'With `given`, no inputs share memory; with `now`, `a` and `b` share a base of 6 elements'
    """
    try:
        bound = inspect.signature(fn).bind(*args, **kwargs)
    except (TypeError, ValueError) as error:
        raise TypeError(f"{name_of(fn)} cannot be called with these arguments: {error}") from error
    contents = {name: value for name, value in bound.arguments.items() if layouts.is_movable(value)}
    if not contents:
        raise TypeError(f"none of the arguments {', '.join(bound.arguments) or '()'} is a tensor in memory")
    return Explorer(fn, bound, contents)


class Explorer(ipywidgets.VBox):
    """The widget of `aotviz.explore_inputs`."""

    def __init__(
        self, fn: Callable[..., Any], bound: inspect.BoundArguments, contents: Mapping[str, torch.Tensor]
    ) -> None:
        self._fn = fn
        self._bound = bound
        self._contents = contents  # the arguments that can be moved
        self._given = layouts.layouts_of(self._contents)
        self._layouts = dict(self._given)
        self._moves = 0
        self._problem = ""
        self._timer: asyncio.TimerHandle | None = None
        self._first = self._compiled(self.tensors())
        self.comparison = self._compared(self._first)  # of the inputs as given with those that the controls say
        self._holder = Replaceable(self.comparison.recording.data)
        self._controls = {name: Controls(name, self._given, self._moved) for name in self._given}
        self._said = ipywidgets.HTML()
        back = ipywidgets.Button(description="As given", layout={"width": "auto"})
        back.on_click(lambda _: self.reset())
        in_main_shell(back)
        boxes = [*(controls.box for controls in self._controls.values()), Names()]
        self.workbench = Workbench(Recording(self._holder))
        super().__init__(
            [
                ipywidgets.HBox(boxes, layout={"flex_flow": "row wrap", "width": "100%"}).add_class(BOX),
                ipywidgets.HBox([back, self._said]),
                self.workbench,
            ],
            layout={"width": "100%"},
        )

    @property
    def error(self) -> str:
        """Why the last move could not be carried out; "" if it was."""
        return self._problem

    def tensors(self) -> dict[str, torch.Tensor]:
        """New tensors that lie where the controls say. Raises what torch raises if there can be none."""
        return layouts.tensors_of(self._layouts, self._contents)

    def move(self, name: str, **changes: Any) -> None:
        """Move an argument, as its controls do, and compile at once.

        `changes` are `memory` or `same_as` (the name of an argument), `offset`, `stride` (a tuple), `dtype` and
        `requires_grad`. Raises KeyError for an unknown argument, and TypeError for another change.
        """
        self._layouts = layouts.moved(self._layouts, name, **changes)
        self._show()

    def reset(self) -> None:
        """Put all controls back to the inputs as they were given."""
        self._layouts = dict(self._given)
        self._show()

    def close(self) -> None:
        """Close the widget and its workbench."""
        self.workbench.close()
        super().close()

    def _moved(self, name: str, **changes: Any) -> None:
        """A control was moved: compile when all have been still for a moment."""
        self._layouts = layouts.moved(self._layouts, name, **changes)
        if self._timer is not None:
            self._timer.cancel()
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:  # not in a kernel
            self._show()
        else:
            self._timer = loop.call_later(STILL_S, self._show)

    def _show(self) -> None:
        """Compile for the layouts, and show the result; or say why that cannot be done, and keep the last result."""
        self._timer = None
        self._moves += 1
        try:
            self.comparison = self._compared(self._compiled(self.tensors()))
            self._problem = ""
        except Exception as error:  # of torch, which cannot make such a tensor, or of a copy
            self._problem = f"{type(error).__name__}: {next(iter(str(error).splitlines()), '')}"
        for name, controls in self._controls.items():
            controls.show(self._layouts[name])
        self._said.value = f"<b>{escape(self._problem)}</b> The last result is still shown." if self._problem else ""
        if not self._problem:
            self._holder.replace(self.comparison.recording.data)

    def _compiled(self, tensors: Mapping[str, torch.Tensor]) -> tuple[Compilation | None, str]:
        arguments = {**self._bound.arguments, **tensors}
        call = inspect.BoundArguments(self._bound.signature, arguments)
        return compiled(self._fn, "now", (call.args, call.kwargs))

    def _compared(self, now: tuple[Compilation | None, str]) -> Comparison:
        # A new id for each move: the page keeps a compilation that it has loaded.
        ids = {"now": f"now {self._moves}" if self._moves else "now"}
        return comparison(name_of(self._fn), [("given", *self._first), ("now", *now)], ids)

    def _repr_mimebundle_(self, **options: Any) -> Any:
        bundle = super()._repr_mimebundle_(**options)
        data = bundle[0] if isinstance(bundle, tuple) else bundle
        if data is not None:
            data["text/plain"] = repr(self.comparison)
        return bundle


class Controls:
    """The controls of one argument. A move calls `moved(name, **changes)`."""

    def __init__(self, name: str, given: Mapping[str, Layout], moved: Callable[..., None]) -> None:
        self._name, self._moved = name, moved
        self._is_shown = False  # whether `show` sets the values now: then the user has not moved a control
        layout = given[name]
        others = [other for other in given if other != name]
        places = [(OWN, name), *((OF.format(other), other) for other in others)]
        places += [(SAME.format(other), f"={other}") for other in others]
        self._memory = ipywidgets.Dropdown(options=places, description="memory")
        most = max(MOST_OFFSET, layout.offset + layout.reach)
        self._offset = ipywidgets.IntSlider(min=0, max=most, description="offset")
        self._steps = [
            ipywidgets.IntSlider(min=0, max=max(MOST_STEP, 2 * step), description=f"stride {dimension}")
            for dimension, step in enumerate(layout.stride)
        ]
        kinds = {**layouts.DTYPES, str(layout.dtype).removeprefix("torch."): layout.dtype}
        self._dtype = ipywidgets.Dropdown(options=list(kinds.items()), description="dtype")
        self._grad = ipywidgets.Checkbox(description="requires_grad", indent=True)
        self.show(layout)
        for control in (self._memory, self._offset, *self._steps, self._dtype, self._grad):
            control.layout.width = "auto"
            control.observe(self._changed, "value")
            in_main_shell(control)
        title = ipywidgets.HTML(f"<b><code>{escape(name)}</code></b> {escape(str(list(layout.shape)))}")
        shared = [self._memory] if others else []
        self.box = ipywidgets.VBox(
            [title, *shared, self._offset, *self._steps, self._dtype, self._grad],
            layout={"flex": "1 1 260px", "padding": "0 12px 8px 0"},
        )

    def show(self, layout: Layout) -> None:
        """Set the controls to a layout."""
        self._is_shown = True
        try:
            self._memory.value = f"={layout.same_as}" if layout.same_as else layout.memory
            self._offset.max = max(self._offset.max, layout.offset)
            self._offset.value = layout.offset
            for control, step in zip(self._steps, layout.stride, strict=True):
                control.max = max(control.max, step)
                control.value = step
            self._dtype.value = layout.dtype
            self._grad.value = layout.requires_grad
        finally:
            self._is_shown = False
        for control in (self._offset, *self._steps, self._dtype, self._grad):
            control.disabled = bool(layout.same_as)

    def _changed(self, change: Any) -> None:
        if self._is_shown:
            return
        place = self._memory.value
        if change["owner"] is self._memory:
            self._moved(self._name, **({"same_as": place[1:]} if place.startswith("=") else {"memory": place}))
        elif change["owner"] is self._offset:
            self._moved(self._name, offset=self._offset.value)
        elif change["owner"] is self._dtype:
            self._moved(self._name, dtype=self._dtype.value)
        elif change["owner"] is self._grad:
            self._moved(self._name, requires_grad=self._grad.value)
        else:
            self._moved(self._name, stride=tuple(control.value for control in self._steps))


def in_main_shell(control: Any) -> None:
    """Let moves of a control wait for the running cell."""
    replies.answer_where_asked(control.comm, lambda data: True)
