"""The ambient context of Dynamo and Inductor: what aotviz reads from it, and puts into it.

docs/design/measured.md, "What Dynamo, the partitioners and Inductor expect", says what others read of it.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch._guards import CompileContext, TracingContext, compile_context, tracing
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils import _device

from aotviz.torch_private import torchs_log

autocast_enabled: Callable[[], bool] = torch._C._is_any_autocast_enabled
autocast_off = torch._C._DisableAutocast
"""Makes a context without autocast."""


@dataclass
class CompilerFacts:
    """The part of the metadata that Inductor reads from `TracingContext.fw_metadata`.

    Inductor does not read the last three fields; our own code in this folder does.
    """

    static_input_indices: list[int]
    num_mutated_inp_runtime_indices: int
    bw_donated_idxs: list[int]
    input_info: Sequence[Any]
    output_info: Sequence[Any]
    num_slots: int  # outputs of the forward before the saved values
    number: int  # torch's, of the program
    shared: dict[str, Any] = field(default_factory=dict)  # what the forward's compiler passes to the backward's


@dataclass(frozen=True)
class Context:
    """The contexts of Dynamo during a compilation, kept for a backward that is compiled later."""

    tracing: Any
    compile: Any


@contextlib.contextmanager
def without_compiled_autograd() -> Iterator[None]:
    """Switch torch's compiled autograd off inside this context."""
    if "torch._dynamo.compiled_autograd" not in sys.modules:
        yield
        return
    from aotviz.torch_private.backward_capture import switched_off  # compiled autograd is already loaded

    with switched_off():
        yield


def unread_draws_kept() -> contextlib.AbstractContextManager[Any]:
    """Inside a compilation of Dynamo, torch removes random operators whose results are not read, unless this setting of
    Inductor says that a program has eager's random numbers. Without them, later numbers would be others."""
    if TracingContext.try_get() is None:
        return contextlib.nullcontext()
    from torch._inductor import config  # torch loads it in that case

    return config.patch(fallback_random=True)


@contextlib.contextmanager
def lowering(
    fake_mode: FakeTensorMode, facts: CompilerFacts, role: str, context: Context | None = None
) -> Iterator[list[Any]]:
    """The ambient state that a compiler expects for a graph with this role.

    Yields the list to which it may add the strides of its outputs.
    """
    known = context or current()
    tracing_context = known.tracing or TracingContext(fake_mode)
    with (
        torch.no_grad(),
        autocast_off(),
        tracing(tracing_context),
        compile_context(known.compile),
        torchs_log.compiling(facts.number, role),
    ):
        before = tracing_context.fw_metadata
        tracing_context.fw_metadata = facts
        try:
            with tracing_context.report_output_strides() as strides:
                yield strides if strides is not None else []
        finally:
            if before is not None and not tracing_context.fakify_first_call:
                tracing_context.fw_metadata = before


def first_call_is_fake() -> bool:
    """Whether the caller will run the compiled code once with fake tensors, to see the layout of its results.

    DDPOptimizer does this between the pieces into which it splits a graph.
    """
    known = TracingContext.try_get()
    return known is not None and bool(known.fakify_first_call)


def current() -> Context:
    return Context(TracingContext.try_get(), CompileContext.try_get())


@contextlib.contextmanager
def backward_autocast(contexts: Sequence[Mapping[str, Any]]) -> Iterator[None]:
    """A context with only these autocasts, each given by its arguments of `torch.amp.autocast`."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(autocast_off())
        for arguments in contexts:
            stack.enter_context(torch.amp.autocast(**arguments))
        yield


class Surroundings:
    """The modes, and the defaults for new tensors, that a trace depends on: those in effect when this is made."""

    def __init__(self) -> None:
        self._grad, self._inference = torch.is_grad_enabled(), torch.is_inference_mode_enabled()
        self._autocast = _autocast()
        self._dtype, self._device = torch.get_default_dtype(), _device.CURRENT_DEVICE
        self._deterministic = torch.are_deterministic_algorithms_enabled()
        self._only_warns = torch.is_deterministic_algorithms_warn_only_enabled()

    @contextlib.contextmanager
    def again(self) -> Iterator[None]:
        """Apply these modes and defaults inside this context, in any thread."""
        before = Surroundings()
        with torch.inference_mode(self._inference), torch.set_grad_enabled(self._grad):
            self._apply()
            try:
                with contextlib.nullcontext() if self._device is None else torch.device(self._device):
                    yield
            finally:
                before._apply()

    @contextlib.contextmanager
    def kept(self) -> Iterator[None]:
        """Restore these modes and defaults after the block, except inference mode."""
        try:
            yield
        finally:
            torch.set_grad_enabled(self._grad)
            self._apply()
            if self._device != _device.CURRENT_DEVICE:
                torch.set_default_device(self._device)

    def changed(self) -> list[str]:
        """What differs now, apart from grad mode and inference mode."""
        differs = {
            "autocast": self._autocast != _autocast(),
            "the default dtype": self._dtype != torch.get_default_dtype(),
            "the default device": self._device != _device.CURRENT_DEVICE,
            "use_deterministic_algorithms": self._deterministic != torch.are_deterministic_algorithms_enabled(),
        }
        return [name for name, is_changed in differs.items() if is_changed]

    def _apply(self) -> None:
        for kind, on, dtype in self._autocast:
            torch.set_autocast_enabled(kind, on)
            torch.set_autocast_dtype(kind, dtype)
        torch.set_default_dtype(self._dtype)
        torch.use_deterministic_algorithms(self._deterministic, warn_only=self._only_warns)


def _autocast() -> list[tuple[str, bool, torch.dtype]]:
    kinds = ("cpu", "cuda")
    return [(kind, torch.is_autocast_enabled(kind), torch.get_autocast_dtype(kind)) for kind in kinds]


def autocast_state() -> tuple[Any, ...]:
    """The current state of autocast, by device type; empty if it is off everywhere."""
    return tuple(_autocast()) if autocast_enabled() else ()


def tell_parameters(tensors: Sequence[torch.Tensor]) -> None:
    """Tell a compiler that runs inside a compilation of Dynamo which tensors were lifted to inputs."""
    tracing_context = TracingContext.try_get()
    if tracing_context is not None:
        tracing_context.params_flat = list(tensors)
        tracing_context.params_flat_unwrap_subclasses = list(tensors)
        tracing_context.params_unwrapped_to_flat_index = list(range(len(tensors)))
