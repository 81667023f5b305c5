"""Runs backwards: captured the first time, replayed after; or by autograd's own engine, with the reason.

Torch's capturing is a switch for the whole process, and refuses a second backward while one runs. Here it is on only
while C++ looks up or captures the backward of a thread that asked for it, which runs no code of the user's: `Gate` lets
no other backward begin meanwhile. A replay runs with the switch off, so that a hook may call `backward`, and other
threads go on.

C++ keeps captures by what autograd's graph looks like, not by who made them: each `Setting` that meets a capture
compiles it for itself.
"""

from __future__ import annotations

import contextlib
import functools
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch
import torch.fx as fx

from aotviz import pipeline
from aotviz.ir.autograd_graph import nodes_behind
from aotviz.ir.forms import Reason
from aotviz.ir.refusals import briefly
from aotviz.options import Options
from aotviz.recording.captured_visits import ANOTHER_KEY
from aotviz.runtime.captured_backward import sizes_vary
from aotviz.torch_private import backward_capture, backward_engine, dispatch, runtime
from aotviz.torch_private.context import autocast_state
from aotviz.whole_backward import current_node
from aotviz.whole_backward.captured import FIRST, BackwardCall, Replay, Visit, WholeBackward
from aotviz.whole_backward.capturing import Capture
from aotviz.whole_backward.inlining import captured_forward
from aotviz.whole_backward.reasons import DROPPED, difference, labels
from aotviz.whole_backward.users_names import names_around

MOST_LOOKED_AT = 64  # nodes of a backward, of which one may say that sizes vary
ACCUMULATE = "torch::autograd::AccumulateGrad"
Compile = Callable[[BackwardCall, WholeBackward], Replay]


class Setting:
    """How backwards are captured and replayed.

    Args:
        options: the pipeline's.
        compile: makes of a captured backward what replays it.
        told: called with the reason for which autograd's engine runs a backward.
        dynamic: capture sizes as symbols at once.
    """

    def __init__(self, options: Options, compile: Compile, told: Callable[[str], None], dynamic: bool = False) -> None:
        self.told, self.dynamic = told, dynamic
        self.options, self._compile = options, compile
        self._earlier: list[tuple[int, WholeBackward]] = []  # (`_drops` at that time, without its graph), newest first

    def lowered(self, call: WholeBackward) -> Replay:
        """What replays a captured backward, by the options of this setting."""
        told = ((drops, difference(one, call)) for drops, one in self._earlier)
        because = tuple(DROPPED if drops < _drops and text == ANOTHER_KEY else text for drops, text in told)
        self._earlier.insert(0, (_drops, replace(call, graph=fx.Graph())))
        return self._compile(BackwardCall(self.options, call.name, because), replace(call, options=self.options))


class Kept:
    """What C++ keeps of a captured backward: it finds captures by autograd's graph, whatever the setting is.

    C++ never frees it, also when it forgets the capture; so `forget` frees what it holds.
    """

    def __init__(self, call: WholeBackward) -> None:
        self._call: WholeBackward | None = call
        self._programs: weakref.WeakKeyDictionary[Setting, Replay] = weakref.WeakKeyDictionary()
        self._first: Replay | None = None

    def __call__(self, *given: Any) -> list[Any]:
        """For somebody else's compiler, which may find the capture too."""
        assert self._first is not None
        with backward_capture.compiler(None, False):
            return self._first(*given)

    def program(self, setting: Setting) -> Replay:
        found = self._programs.get(setting)
        if found is None:
            assert self._call is not None
            found = self._programs[setting] = setting.lowered(self._call)
            self._first = self._first or found
        return found

    def forget(self) -> None:
        self._call = self._first = None
        self._programs.clear()


class Gate:
    """Many backwards may run at a time; while one is looked up or captured, none begins."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._running = 0
        self._closed = False

    def close(self) -> bool:
        """Close it, if no backward runs."""
        with self._changed:
            if self._running or self._closed:
                return False
            self._closed = True
            return True

    def open(self, runs: bool = False) -> None:
        """Open it again. `runs`: the backward that closed it goes on, until `left`."""
        with self._changed:
            self._closed = False
            self._running += runs
            self._changed.notify_all()

    def left(self) -> None:
        with self._changed:
            self._running -= 1

    @contextlib.contextmanager
    def passed(self) -> Iterator[None]:
        """Around a backward that runs."""
        with self._changed:
            self._changed.wait_for(lambda: not self._closed)
            self._running += 1
        try:
            yield
        finally:
            self.left()


class _Thread(threading.local):
    setting: Setting | None = None
    engine_runs = False  # a backward of this thread is being captured, replayed, or run by autograd's engine
    callbacks: list[Callable[[], Any]] | None = None  # of the replay that runs
    run: _Run | None = None


_gate, _thread = Gate(), _Thread()
_installed, _count = threading.RLock(), 0
_kept: list[Kept] = []  # for captures that C++ knows
_drops = 0  # how often C++ was made to forget them
_autocast: tuple[Any, ...] = ()  # autocast's state, for which C++ keeps captures


@contextlib.contextmanager
def capturing(setting: Setting | None) -> Iterator[None]:
    """The backwards that this thread begins are captured as `setting` says; with None, autograd's engine runs them."""
    before, _thread.setting = _thread.setting, setting
    _install(+1)
    try:
        yield
    finally:
        _thread.setting = before
        _install(-1)


def reset() -> None:
    """Forget all captures."""
    global _drops
    _drops += 1
    backward_capture.clear_captures()
    while _kept:
        _kept.pop().forget()


def _install(change: int) -> None:
    global _count
    with _installed:
        if _count == 0:
            backward_engine.install(_around, queue_callback, current_node.current)
        _count += change
        if _count == 0:
            backward_engine.uninstall()


def queue_callback(queue: Callable[[Any], None], callback: Callable[[], Any]) -> None:
    """`queue_callback` of autograd's engine, which forgets what is queued in a replay."""
    if _thread.callbacks is None:
        queue(callback)
    else:
        _thread.callbacks.append(callback)


def _around(original: backward_engine.Engine) -> backward_engine.Engine:
    def run_backward(
        outputs: Sequence[Any],
        gradients: Sequence[Any],
        keep_graph: bool,
        create_graph: bool,
        inputs: Sequence[Any] = (),
        *others: Any,
        **named: Any,
    ) -> Any:
        engine = functools.partial(original, outputs, gradients, keep_graph, create_graph, inputs, *others, **named)
        setting = None if dispatch.a_compiler_traces() else _thread.setting
        if _thread.engine_runs:
            return _by_engine(engine)
        _thread.engine_runs = True
        try:
            if setting is not None:
                why = _why_not(create_graph)
                if not why:
                    with contextlib.ExitStack() as lock:
                        # Before the gate is closed, since a capture compiles: who waits at the gate may hold this lock.
                        lock.enter_context(pipeline.lock)
                        if _gate.close():
                            return _Run(setting, engine, outputs, inputs, lock.pop_all()).result()
                    why = "another thread runs a backward at the same time"
                setting.told(why)
            with _gate.passed():
                return _by_engine(engine)
        finally:
            _thread.engine_runs = False

    return torch.compiler.disable(run_backward)  # Dynamo would trace it where a compiled function calls backward()


def _by_engine(engine: Callable[[], Any]) -> Any:
    callbacks, _thread.callbacks = _thread.callbacks, None
    try:
        return engine()
    finally:
        _thread.callbacks = callbacks


def _why_not(create_graph: bool) -> str:
    reasons = {
        "its gradients are differentiated again (create_graph=True)": create_graph,
        "it computes a batch of gradients (is_grads_batched=True, or a transform of torch.func)": runtime.batched(),
        "a TorchDispatchMode is active, which sees each operator": runtime.dispatched(),
        "a level of forward-mode differentiation is open": runtime.forward_differentiation(),
        "inference mode is on": torch.is_inference_mode_enabled(),
        "anomaly mode is on, in which the engine names the operator of the forward that failed": (
            torch.is_anomaly_enabled()
        ),
    }
    return next((why for why, holds in reasons.items() if holds), "")


class _Run:
    """One backward that is captured or replayed. It begins with the gate closed."""

    def __init__(
        self,
        setting: Setting,
        engine: Callable[[], Any],
        outputs: Sequence[Any],
        inputs: Sequence[Any],
        switch: contextlib.ExitStack,
    ) -> None:
        self._setting, self._engine = setting, engine
        self._outputs, self._inputs = outputs, inputs
        self._error: BaseException | None = None  # of the replay
        self._replays = False
        self._has_threads = torch.autograd.is_multithreading_enabled()
        self._switch = switch  # on while C++ looks up or captures; it has the pipeline's lock

    def result(self) -> Any:
        _thread.run = self
        failed: BaseException | None = None
        try:
            _drop_captures_of_another_autocast()
            with torch.autograd.set_multithreading_enabled(False), self._switch:
                dynamic = self._setting.dynamic or any(map(sizes_vary, self._first_nodes()))
                self._switch.enter_context(backward_capture.compiler(self._capture, dynamic))
                results = self._engine()
            if not self._replays:
                reset()  # C++ has found a capture of somebody else's; the next backward is captured here
            return results
        except Exception as error:
            failed = self._error  # C++ makes another error of some
            if failed is None:
                if self._replays:
                    raise
                reset()  # what C++ keeps of a capture that failed leads it into an error at the next
                why = briefly(error)
        finally:
            _thread.run = None
            self._switch.close()
            if self._replays:
                _gate.left()  # only here, since C++ refuses another capture until it has returned
            else:
                _gate.open()
        if failed is not None:
            raise failed
        try:
            with _gate.passed():
                results = _by_engine(self._engine)
        except Exception as error:
            if briefly(error) != why:  # otherwise the error is the user's, and says all
                self._setting.told(f"it could not be captured ({why})")
            raise
        self._setting.told(f"it could not be captured ({why})")
        return results

    def _first_nodes(self) -> list[Any]:
        """Some of the nodes that this backward runs. A compiled forward is among them, if its results soon make the
        loss; to look at all nodes of a large graph at each backward would take too long."""
        return nodes_behind(map(backward_engine.started_at, self._outputs), MOST_LOOKED_AT)

    def _capture(self) -> Capture:
        visits = backward_engine.visits(self._outputs, self._inputs)
        with dispatch.without_modes():
            names = names_around(sys._getframe(), [one.node.variable for one in visits if one.name == ACCUMULATE])
        asked = [backward_engine.edge(one) for one in self._inputs]
        return Capture(visits, asked, names, self._captured)

    def _captured(self, capture: Capture) -> Any:
        kept = Kept(form_of(capture, self._setting.options))
        with backward_capture.compiler(None, False):
            kept.program(self._setting)  # an error now lets the engine run this backward
        _kept.append(kept)
        return _replay, kept

    def replay(self, kept: Kept, given: Sequence[Any]) -> list[Any]:
        self._replays = True
        self._switch.close()
        _gate.open(runs=True)
        callbacks = _thread.callbacks = list[Callable[[], Any]]()
        try:
            with backward_capture.switched_off(), torch.autograd.set_multithreading_enabled(self._has_threads):
                with current_node.replaying(self._outputs, self._inputs):
                    results = kept.program(self._setting)(*given)
                for callback in callbacks:  # which may queue more
                    callback()
                return results
        except BaseException as error:
            self._error = error
            raise
        finally:
            _thread.callbacks = None


def _replay(kept: Kept, *given: Any) -> list[Any]:
    """What C++ calls for a captured backward, with what it lifted."""
    return kept(*given) if _thread.run is None else _thread.run.replay(kept, given)


def _drop_captures_of_another_autocast() -> None:
    """C++'s key says nothing of autocast, which decides the dtypes of what a backward computes."""
    global _autocast
    state = autocast_state()
    if state != _autocast:
        _autocast = state
        reset()


def _named(one: backward_engine.AutogradNode) -> str:
    ours = captured_forward(one.node)
    return one.name.rpartition("::")[2] if ours is None else f"backward of {ours.name}"


def form_of(capture: Capture, options: Options) -> WholeBackward:
    """A capture, as the stages take it."""
    visits = tuple(
        Visit(_named(one), capture.names.get(id(one.node.variable), ""), FIRST, number)
        if one.name == ACCUMULATE
        else Visit(_named(one), "", one.sequence, number)
        for number, one in enumerate(capture.visited)
    )
    copied = tuple(Reason(subject, text) for subject, text in capture.inliner.told)
    done = labels(capture.graph, len(visits))
    elapsed, number = time.perf_counter_ns() - capture.began_ns, backward_capture.next_number()
    return WholeBackward(
        options, "backward", capture.graph, visits, tuple(capture.lifted), done, elapsed, number, evidence=copied
    )
