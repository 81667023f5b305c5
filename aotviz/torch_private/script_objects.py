"""Objects other than tensors and plain values that operators take: torchbind classes, opaque types.

Calling a method may change the object, so a trace must not call the real one. Each object gets a fake made from its
contents, whose methods are traced as `call_torchbind(object, "method", ...)`, an effect like a print. The real object
is an input of the graph.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch._library import opaque_object
from torch._library.fake_class_registry import FakeScriptObject as FakeScriptObject
from torch._library.fake_class_registry import has_fake_class, maybe_to_fake_obj
from torch._subclasses.fake_tensor import FakeTensorMode

from aotviz.torch_private.cannot_trace import CannotTrace

_BY_REFERENCE = getattr(opaque_object, "is_opaque_symbolic_type", None) or opaque_object.is_opaque_reference_type


def is_object(value: Any) -> bool:
    """Whether `value`, though not a tensor, must be an input of the graph.

    torch also calls a random generator opaque, for its own graphs. But passing a fake generator to an operator crashes
    the process, and a generator can stay in the graph as a constant.
    """
    if isinstance(value, torch.Generator):
        return False
    return isinstance(value, torch.ScriptObject) or _BY_REFERENCE(type(value))


def is_stand_in(value: Any) -> bool:
    return isinstance(value, FakeScriptObject)


def real(value: Any) -> Any:
    """What a stand-in stands for; another value is itself."""
    return value.real_obj if is_stand_in(value) else value


def stand_in(value: Any, fake_mode: FakeTensorMode, name: str) -> Any:
    """The fake of `value`, which the user calls `name`.

    Raises:
        CannotTrace: a torchbind class without a registered fake class.
    """
    if isinstance(value, torch.ScriptObject) and not has_fake_class(value._type().qualified_name()):
        kind = value._type().qualified_name().removeprefix("__torch__.torch.classes.").replace(".", "::")
        raise CannotTrace("script object without a fake class", repr(name), kind)
    return maybe_to_fake_obj(fake_mode, value)


def attributes(root: torch.nn.Module) -> Iterator[tuple[str, Any]]:
    """(dotted name, object) of the objects that modules hold as attributes."""
    for path, module in root.named_modules():
        for name, value in vars(module).items():
            if is_object(value):
                yield f"{path}.{name}" if path else name, value
