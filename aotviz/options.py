"""All options of a compilation in one frozen value, which is made once and passed to every stage."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any


@dataclass(frozen=True)
class Export:
    """What an export should return. `kind` is "module" or "simple"; `loss` is the position of the loss among the flat
    outputs. With `pre_dispatch`, the graph is traced above autograd and autocast.
    """

    kind: str = "module"
    joint: bool = False
    loss: int | None = None
    pre_dispatch: bool = False


@dataclass(frozen=True)
class Options:
    """How to compile. Stages read these options, and no global configuration.

    `fw_compiler`, `bw_compiler` and `inference_compiler` take `(graph_module, example_inputs)` and return a
    callable. A callable whose `_boxed_call` is true takes one list, which it may empty. A compiler whose
    `takes_lazy_graphs` is true gets a module whose Python code is generated at its first call. `partition_fn` takes
    `(joint, joint_inputs, *, num_fwd_outputs, static_lifetime_input_indices)` and returns the forward and the
    backward graph modules. `joint_pass` may rewrite the joint graph before it is partitioned.
    """

    fw_compiler: Callable[..., Any]
    bw_compiler: Callable[..., Any]
    inference_compiler: Callable[..., Any]
    partition_fn: Callable[..., Any]
    joint_pass: Callable[[Any, Any], Any] | None = None
    joint_custom_pass: Callable[[Any, Any], Any] | None = None  # the user's pass, which runs before the compiler's
    decompositions: Mapping[Any, Any] | None = None
    keep_inference_input_mutations: bool = False
    dynamic: bool = False
    static_parameters: int = 0  # how many of the first flat inputs are parameters and buffers
    donate_buffers: bool = True
    compile_backward_now: bool = False  # together with the forward, not at its first call
    functionalize_rng_ops: bool = False  # on a GPU, random numbers are a function of a seed and an offset
    graphsafe_rng: bool = False  # on a GPU, forward and backward share generators that CUDA graphs can replay
    selective_decompose: bool = False  # decompose operators only where the user asked for Inductor
    remat_using_tags: bool = True  # recompute checkpointed regions for a backward inside the function
    backward_autocast: tuple[Mapping[str, Any], ...] = ()  # arguments of each torch.amp.autocast around the backward
    graph_counts_writes: bool = True  # writes to inputs in the compiled graph increase version counters
    export: Export = Export()  # only the stages of an export read it
    debug: bool = False  # check each stage's result, each call's arguments, and the memory that the call writes
    backend: str = "custom"  # the name that users know

    @property
    def by_operator(self) -> bool:
        """Whether a compiled graph may run operator by operator, unlike Inductor's: recomputing then saves no time."""
        return self.graph_counts_writes

    def as_text(self) -> dict[str, str]:
        """Each option by its name, for a recording."""

        def text(value: Any) -> str:
            if callable(value):
                return f"{getattr(value, '__module__', '')}.{getattr(value, '__qualname__', type(value).__name__)}"
            if isinstance(value, Mapping):
                return f"{len(value)} entries"
            return str(value)

        return {field.name: text(getattr(self, field.name)) for field in fields(self)}


def compilers(
    forward: Callable[..., Any], backward: Callable[..., Any] | None = None, inference: Callable[..., Any] | None = None
) -> dict[str, Any]:
    """The three compilers, by their options. `forward` stands for one that is None."""
    return {"fw_compiler": forward, "bw_compiler": backward or forward, "inference_compiler": inference or forward}
