"""What each graph input and output means to the user.

A graph has `primals_3` and `tangents_1`; a user knows `model.wte.weight` and "the gradient of the loss". A descriptor
connects the two. Every placeholder has one in `meta["desc"]`, the output node has a list of them, and `str()` of one is
the text that tables and views show (docs/design/system.md A6).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar


@dataclass(frozen=True)
class Descriptor:
    """Base of all descriptors. `text` is what `str()` returns, filled in with the descriptor's fields: of several
    members, each."""

    text: ClassVar[str]

    def __init_subclass__(cls, text: str = "") -> None:
        if text:
            cls.text = text

    def __str__(self) -> str:
        fields = vars(self).items()
        return self.text.format(**{k: ", ".join(map(str, v)) if isinstance(v, tuple) else v for k, v in fields})


@dataclass(frozen=True)
class InputDescriptor(Descriptor):
    """A value that goes into a graph."""


@dataclass(frozen=True)
class OutputDescriptor(Descriptor):
    """A value that comes out of a graph."""


@dataclass(frozen=True)
class PlainInput(InputDescriptor, text="{name}"):
    """The user's argument number `index`, by the user's name for it."""

    index: int
    name: str


@dataclass(frozen=True)
class ParameterInput(PlainInput):
    """A module's parameter, lifted to an input."""


@dataclass(frozen=True)
class BufferInput(PlainInput):
    """A module's buffer, lifted to an input."""


@dataclass(frozen=True)
class SyntheticBaseInput(InputDescriptor, text="base of {members}"):
    """The one tensor that several overlapping inputs are views of."""

    members: tuple[InputDescriptor, ...]


@dataclass(frozen=True)
class RandomStateInput(InputDescriptor, text="random {name}"):
    """A part of a random generator's state, "seed" or "offset", or a generator that two graphs share."""

    name: str


@dataclass(frozen=True)
class RootInput(InputDescriptor, text="root of {members}"):
    """The tensor from which overlapping inputs, as its views, have their `grad_fn`."""

    members: tuple[InputDescriptor, ...]


@dataclass(frozen=True)
class SubclassPartInput(InputDescriptor, text="{of}{path}"):
    """A part of a tensor subclass, or one of its sizes: `weight.a`, `x.size(1)`."""

    of: InputDescriptor
    path: str


@dataclass(frozen=True)
class PlainOutput(OutputDescriptor, text="{name}"):
    """The user's output number `index`, by its path in what the function returned."""

    index: int
    name: str


@dataclass(frozen=True)
class MutatedInputOutput(OutputDescriptor, text="{input} after mutation"):
    """The new contents (or new metadata) of an input that the function changed."""

    input: InputDescriptor


@dataclass(frozen=True)
class LeftBehindOutput(OutputDescriptor, text="{input} before its storage is replaced"):
    """The data that the function wrote to an input before it gave the input another storage."""

    input: InputDescriptor


@dataclass(frozen=True)
class IntermediateBaseOutput(OutputDescriptor, text="base of {of}"):
    """An intermediate tensor that is returned because user outputs are views of it."""

    of: OutputDescriptor


@dataclass(frozen=True)
class SubclassPartOutput(OutputDescriptor):
    """A part of an output that is a tensor subclass, or one of its sizes."""

    of: OutputDescriptor
    path: str

    def __str__(self) -> str:
        return f"{self.of}{self.path}" if isinstance(self.of, PlainOutput) else f"({self.of}){self.path}"


@dataclass(frozen=True)
class GradientOutput(OutputDescriptor, text="gradient of {input}"):
    """The gradient of an input, as a backward graph returns it."""

    input: InputDescriptor


@dataclass(frozen=True)
class TangentInput(InputDescriptor, text="tangent of {output}"):
    """The incoming gradient of one output of the forward graph."""

    output: OutputDescriptor


@dataclass(frozen=True)
class SavedInput(InputDescriptor, text="saved {name}"):
    """A value that the forward kept for the backward; `name` is its node in the forward graph."""

    name: str


@dataclass(frozen=True)
class SavedOutput(OutputDescriptor, text="saved {name}"):
    """The other end of `SavedInput`."""

    name: str


def parts_of(descriptor: Descriptor, paths: Iterable[str]) -> tuple[Any, ...]:
    """A descriptor for each flat value of an input or output; `paths` lead there, "" for a plain tensor.

    >>> [str(part) for part in parts_of(PlainInput(0, "weight"), [".a", ".b"])]
    ['weight.a', 'weight.b']
    """
    kind: Any = SubclassPartInput if isinstance(descriptor, InputDescriptor) else SubclassPartOutput
    return tuple(kind(descriptor, path) if path else descriptor for path in paths)
