"""Compilers that say of which class their results are, so that these can be stored."""

from __future__ import annotations

from typing import Any

_NAME = "SerializableAOTDispatchCompiler"


def class_of_results(compiler: Any) -> type[Any] | None:
    """The class of the results of torch's `SerializableAOTDispatchCompiler`; None for any other compiler."""
    is_one = any(one.__name__ == _NAME and one.__module__.startswith("torch.") for one in type(compiler).__mro__)
    kind = getattr(compiler, "output_code_ty", None) if is_one else None
    return kind if isinstance(kind, type) else None
