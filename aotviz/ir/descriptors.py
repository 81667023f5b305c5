"""What each graph input and output means to the user.

A graph has `primals_3` and `tangents_1`; a user knows `model.wte.weight` and "the gradient of the loss". A descriptor
connects the two. Every placeholder has one in `meta["desc"]`, the output node has a list of them, and `str()` of one is
the text that tables and views show (SYSTEM.md A6).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Descriptor:
    """Base of all descriptors."""


@dataclass(frozen=True)
class InputDescriptor(Descriptor):
    """A value that goes into a graph."""


@dataclass(frozen=True)
class OutputDescriptor(Descriptor):
    """A value that comes out of a graph."""


@dataclass(frozen=True)
class PlainInput(InputDescriptor):
    """The user's argument number `index`, by the user's name for it."""

    index: int
    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class ParameterInput(PlainInput):
    """A module's parameter, lifted to an input."""


@dataclass(frozen=True)
class BufferInput(PlainInput):
    """A module's buffer, lifted to an input."""


@dataclass(frozen=True)
class SyntheticBaseInput(InputDescriptor):
    """The one tensor that several overlapping inputs are views of."""

    members: tuple[InputDescriptor, ...]

    def __str__(self) -> str:
        return "base of " + ", ".join(str(member) for member in self.members)


@dataclass(frozen=True)
class RandomStateInput(InputDescriptor):
    """A part of a random generator's state, "seed" or "offset", or a generator that two graphs share."""

    name: str

    def __str__(self) -> str:
        return f"random {self.name}"


@dataclass(frozen=True)
class RootInput(InputDescriptor):
    """The tensor from which overlapping inputs, as its views, have their `grad_fn`."""

    members: tuple[InputDescriptor, ...]

    def __str__(self) -> str:
        return "root of " + ", ".join(str(member) for member in self.members)


@dataclass(frozen=True)
class SubclassPartInput(InputDescriptor):
    """A part of a tensor subclass, or one of its sizes: `weight.a`, `x.size(1)`."""

    of: InputDescriptor
    path: str

    def __str__(self) -> str:
        return f"{self.of}{self.path}"


@dataclass(frozen=True)
class PlainOutput(OutputDescriptor):
    """The user's output number `index`, by its path in what the function returned."""

    index: int
    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class MutatedInputOutput(OutputDescriptor):
    """The new contents (or new metadata) of an input that the function changed."""

    input: InputDescriptor

    def __str__(self) -> str:
        return f"{self.input} after mutation"


@dataclass(frozen=True)
class LeftBehindOutput(OutputDescriptor):
    """The data that the function wrote to an input before it gave the input another storage."""

    input: InputDescriptor

    def __str__(self) -> str:
        return f"{self.input} before its storage is replaced"


@dataclass(frozen=True)
class IntermediateBaseOutput(OutputDescriptor):
    """An intermediate tensor that is returned because user outputs are views of it."""

    of: OutputDescriptor

    def __str__(self) -> str:
        return f"base of {self.of}"


@dataclass(frozen=True)
class SubclassPartOutput(OutputDescriptor):
    """A part of an output that is a tensor subclass, or one of its sizes."""

    of: OutputDescriptor
    path: str

    def __str__(self) -> str:
        return f"{self.of}{self.path}" if isinstance(self.of, PlainOutput) else f"({self.of}){self.path}"


@dataclass(frozen=True)
class GradientOutput(OutputDescriptor):
    """The gradient of an input, as a backward graph returns it."""

    input: InputDescriptor

    def __str__(self) -> str:
        return f"gradient of {self.input}"


@dataclass(frozen=True)
class TangentInput(InputDescriptor):
    """The incoming gradient of one output of the forward graph."""

    output: OutputDescriptor

    def __str__(self) -> str:
        return f"tangent of {self.output}"


@dataclass(frozen=True)
class SavedInput(InputDescriptor):
    """A value that the forward kept for the backward; `name` is its node in the forward graph."""

    name: str

    def __str__(self) -> str:
        return f"saved {self.name}"


@dataclass(frozen=True)
class SavedOutput(OutputDescriptor):
    """The other end of `SavedInput`."""

    name: str

    def __str__(self) -> str:
        return f"saved {self.name}"


def input_parts(descriptor: InputDescriptor, paths: Iterable[str]) -> tuple[InputDescriptor, ...]:
    """A descriptor for each flat value of an input.

    >>> [str(part) for part in input_parts(PlainInput(0, "weight"), [".a", ".b"])]
    ['weight.a', 'weight.b']
    """
    return tuple(SubclassPartInput(descriptor, path) if path else descriptor for path in paths)


def output_parts(descriptor: OutputDescriptor, paths: Iterable[str]) -> tuple[OutputDescriptor, ...]:
    """The same for an output."""
    return tuple(SubclassPartOutput(descriptor, path) if path else descriptor for path in paths)
