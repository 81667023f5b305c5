"""What a user's compiler made, as a part of an entry, if the compiler says how its results are stored.

torch's `SerializableAOTDispatchCompiler(kind, compiler)` is a compiler whose results are of one class, an `OutputCode`:
after `prepare_for_serialization()` a result can be pickled, and `post_compile(...)` makes it ready to run. Unpickling
runs code. So such a part is treated as Inductor's code is: it is named and left out like that, and it is read only if
it comes from who is trusted with code (docs/security.md).
"""

from __future__ import annotations

import base64
import copy
import hashlib
import pickle
from collections.abc import Sequence
from typing import Any

from aotviz.cache.entry import Compiled
from aotviz.cache.values import Broken
from aotviz.ir.serializable import class_of_results
from aotviz.stages.lower import boxed


def taken_out(compiler: Any, compiled: Any) -> tuple[Compiled, bytes] | None:
    """Where a result is stored, and its bytes. None if the compiler does not say how, or if it cannot be pickled."""
    kind: Any = class_of_results(compiler)
    while kind is not None and not isinstance(compiled, kind) and hasattr(compiled, "__wrapped__"):
        compiled = compiled.__wrapped__
    if kind is None or not isinstance(compiled, kind):
        return None
    try:
        stored = copy.copy(compiled)
        stored.prepare_for_serialization()
        data = pickle.dumps(stored)
    except Exception:  # whatever the user's class does: the graph is compiled again
        return None
    digest = hashlib.blake2b(data, digest_size=32).digest()
    return Compiled(f"f{base64.b32encode(digest).decode().lower()[:51]}", None), data


def put_in(compiler: Any, data: bytes, inputs: Sequence[Any]) -> Any:
    """The result of which these are the bytes, ready to run.

    Raises:
        Broken: it is of another class.
    """
    from aotviz.torch_private.inductor_code import no_constants  # the user's class has loaded what this loads

    kind: Any = class_of_results(compiler)
    made = pickle.loads(data)
    if kind is None or not isinstance(made, kind):
        raise Broken(f"the code of a graph is no {kind}")
    made.post_compile(inputs, no_constants(), {})
    return boxed(made)
