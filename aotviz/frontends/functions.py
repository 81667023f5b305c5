"""Drop-in replacements for torch's `aot_function` and its siblings.

Each makes a `Request` and sends it through the pipeline. They differ in when they compile, at once or at the first
call, and in how the program is called, with the user's own arguments or with flat inputs.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch

from aotviz.cache.switch import Choice, store_of_compilation
from aotviz.frontends.cached import compile_traced
from aotviz.frontends.call_signatures import Programs
from aotviz.frontends.compiling import guard_duplicates
from aotviz.frontends.requests import graph_request, refuse_mixed, request_for
from aotviz.ir import torchs_settings
from aotviz.ir.forms import Request
from aotviz.ir.partition_functions import named
from aotviz.ir.refusals import Refused
from aotviz.ir.spelling import called
from aotviz.lowerings import EAGER, run_graph
from aotviz.options import Options, compilers
from aotviz.recorder.sessions import CompiledCallable, Session
from aotviz.runtime.call_differs import InsideTransform
from aotviz.torch_private import operators, pytree
from aotviz.torch_private.partitioners import default_partition
from aotviz.tracing.fakes import is_fake

aot_autograd_decompositions: dict[Any, Callable[..., Any]] = {}  # used by all functions below; callers may add entries


def _options(
    fw_compiler: Any, bw_compiler: Any, inference_compiler: Any, partition_fn: Any, no_functions: bool, **others: Any
) -> Options:
    if no_functions:
        raise Refused("functionalization is switched off")
    if not callable(fw_compiler):
        raise TypeError(f"fw_compiler must be callable, and it is {fw_compiler!r}")
    if not others.get("debug"):
        others.pop("debug", None)  # torch's setting decides
    if aot_autograd_decompositions:
        others["decompositions"] = {**aot_autograd_decompositions, **(others.get("decompositions") or {})}
    operators.check_decompositions(others.get("decompositions"))
    return Options(
        **compilers(fw_compiler, bw_compiler, inference_compiler),
        partition_fn=named(partition_fn),
        backend=EAGER.name if fw_compiler is run_graph else str(getattr(fw_compiler, "__name__", "custom")),
        **{**torchs_settings.current(), **others},
    )


def aot_function(
    fn: Callable[..., Any],
    fw_compiler: Callable[..., Any],
    bw_compiler: Callable[..., Any] | None = None,
    partition_fn: str | Callable[..., Any] = default_partition,
    decompositions: Mapping[Any, Any] | None = None,
    num_params_buffers: int = 0,
    keep_inference_input_mutations: bool = False,
    inference_compiler: Callable[..., Any] | None = None,
    *,
    dynamic: bool = False,
    enable_log: bool = True,
    disable_functionalization: bool = False,
    record: bool = True,
    debug: bool = False,
    cache: Choice = None,
    _disable_torch_fn_metadata_mode: bool = False,
) -> Callable[..., Any]:
    """torch's `aot_function`, through our pipeline. The first call compiles a program, which others use as well.

    Unlike torch's, it compiles again for a call of which the result would otherwise not be eager's: with another
    number, text, flag, generator or structure of the arguments, with an input that requires grad only now, or after a
    first call under `no_grad`. Sizes and dtypes are not compared.

    The result has `.recording`, `.program` and `.source` once it has been called.

    Args:
        fn: takes and returns any pytrees of tensors. The parameters and buffers of a module become inputs.
        fw_compiler: `(graph_module, example_inputs) -> callable` for the forward.
        bw_compiler: the same for the backward; `fw_compiler` if None.
        partition_fn: splits the joint graph in two: a function, or the name of one of torch's.
        decompositions: operator -> function that it is traced as.
        num_params_buffers: how many of the first inputs are parameters or buffers, with static shapes and memory.
        keep_inference_input_mutations: let the graph write inputs where nothing can tell the difference.
        inference_compiler: for a call that needs no gradients; `fw_compiler` if None.
        dynamic: trace with symbolic sizes.
        enable_log: ignored; only for compatibility with torch. aotviz has recordings instead of logs.
        record: keep a recording of each stage.
        debug: verify every form at every stage boundary, compare each call's arguments with the traced ones, and, where
            the function writes to its inputs, run it once more on copies and compare all memory of what is written.
        cache: True, False, or the folder of a cache; None if `AOTVIZ_CACHE_DIR` decides. Only what aotviz's own
            compilers make, such as `run_graph`, is cached. The function is traced once to find it.

    Raises:
        Refused: `disable_functionalization`, or aotviz can't compile an input; the message names it.
        ValueError: some tensors of the call are fake, and others are not.
        TypeError: `cache` is neither a bool nor a folder.

    >>> import torch
    >>> from aotviz.lowerings import run_graph
    >>> f = aot_function(lambda x: x.sin().cos(), run_graph)
    >>> x = torch.ones(2, requires_grad=True)
    >>> bool((f(x) == x.sin().cos()).all())
    True
    """
    options = _options(
        fw_compiler,
        bw_compiler,
        inference_compiler,
        partition_fn,
        disable_functionalization,
        decompositions=decompositions,
        static_parameters=num_params_buffers,
        keep_inference_input_mutations=keep_inference_input_mutations,
        dynamic=dynamic,
        debug=debug,
    )
    store = store_of_compilation(cache, debug)
    session = Session(record, called(fn))
    root = fn if isinstance(fn, torch.nn.Module) else None

    def request(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Request:
        made = request_for(fn, args, kwargs, options, root_module=root)
        refuse_mixed(made)
        return made

    programs = Programs(fn, request, lambda request: compile_traced(request, session, store), session)

    @functools.wraps(fn, updated=())
    def compiled(*args: Any, **kwargs: Any) -> Any:
        function = programs.function(args, kwargs)
        try:
            return function(*args, **kwargs)
        except InsideTransform:  # a transform needs the operators of the original function
            return fn(*args, **kwargs)
        except AssertionError:  # torch's, if parameters became fake since
            request(args, kwargs)
            raise

    return CompiledCallable(compiled, session)


def aot_module(mod: torch.nn.Module, *args: Any, **kwargs: Any) -> torch.nn.Module:
    """torch's `aot_module`: `mod` with its parameters and buffers lifted, through `aot_function`.

    `args` and `kwargs` are those of `aot_function` after `fn`. The result is a module with the same parameters.

    >>> import torch
    >>> from aotviz.lowerings import run_graph
    >>> m = aot_module(torch.nn.Linear(2, 2), run_graph)
    >>> m(torch.ones(1, 2)).shape
    torch.Size([1, 2])
    """
    if not isinstance(mod, torch.nn.Module):
        raise TypeError(f"aot_module takes an nn.Module, not {mod!r}")
    inner: Any = aot_function(mod, *args, **kwargs)

    class AOTModule(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.orig_module = mod

        def forward(self, *args: Any, **kwargs: Any) -> Any:
            return inner(*args, **kwargs)

        @property
        def recording(self) -> Any:
            return inner.recording

        @property
        def source(self) -> str:
            return str(inner.source)

        def to_python(self, compile_id: str | None = None) -> str:
            """As `to_python` of what `aotviz.compile` returns."""
            return str(inner.to_python(compile_id))

    return AOTModule()


def aot_module_simplified(
    mod: Any,
    args: Sequence[Any],
    fw_compiler: Callable[..., Any],
    bw_compiler: Callable[..., Any] | None = None,
    partition_fn: str | Callable[..., Any] = default_partition,
    decompositions: Mapping[Any, Any] | None = None,
    keep_inference_input_mutations: bool = False,
    inference_compiler: Callable[..., Any] | None = None,
    compiler_config_extra: Any = None,
    ignore_shape_env: bool = False,
    disable_functionalization: bool = False,
    pre_grad_passes: Callable[[Any, Sequence[Any]], Any] | None = None,
    compile_region_name: str | None = None,
    *,
    joint_pass: Callable[[Any, Any], Any] | None = None,
    record: bool = True,
    debug: bool = False,
    cache: Choice = None,
    backend: str | None = None,
    session: Session | None = None,
) -> Callable[..., Any]:
    """torch's `aot_module_simplified`: compile at once, for flat inputs, without pytrees at run time.

    `mod` is a graph module or a module that takes and returns flat tensors. Its parameters and buffers are lifted,
    if it has any. The result takes the other inputs, flat, and returns a list.

    >>> import torch
    >>> from aotviz.lowerings import run_graph
    >>> m = torch.fx.symbolic_trace(torch.nn.ReLU())
    >>> aot_module_simplified(m, [torch.ones(2)], run_graph)(torch.ones(2))
    [tensor([1., 1.])]
    """
    options = _options(
        fw_compiler,
        bw_compiler,
        inference_compiler,
        partition_fn,
        disable_functionalization,
        decompositions=decompositions,
        keep_inference_input_mutations=keep_inference_input_mutations,
        joint_pass=joint_pass,
        dynamic=not ignore_shape_env and any(isinstance(a, torch.SymInt) for a in args),
        debug=debug,
    )
    if backend is not None:
        options = replace(options, backend=backend)
    if pre_grad_passes is not None:
        mod = pre_grad_passes(mod, args)
    session = session or Session(record, type(mod).__name__)
    request = graph_request(mod, tuple(args), options, compile_region_name)
    program = compile_traced(request, session, store_of_compilation(cache, debug))
    guard_duplicates(mod, request, program)
    function, lifted = program.function, request.convention.parameters

    has_fakes = any(is_fake(tensor) for *_, tensor in request.named)

    def boxed(inputs: list[Any]) -> Any:
        if has_fakes:
            refuse_mixed(replace(request, args=tuple(inputs)))
        own = lifted() if lifted is not None else ()
        inputs[:0] = own
        try:
            return function(inputs)
        except InsideTransform:  # raised before the list is changed
            return pytree.tree_flatten(mod(*inputs[len(own) :]))[0]

    result: Any = CompiledCallable(lambda *inputs: boxed([*inputs]), session)
    result.boxed = boxed
    for name in ("zero_grad", "named_parameters", "named_buffers"):  # what users of an optimizer call on a module
        if hasattr(mod, name):
            setattr(result, name, getattr(mod, name))
    return result


def make_boxed_func(f: Callable[..., Any]) -> Callable[[list[Any]], Any]:
    """torch's `make_boxed_func`: `f` as a function of one list, which is how compiled graphs are called.

    >>> make_boxed_func(lambda x, y: x + y)([1, 2])
    3
    """

    @functools.wraps(f, updated=())
    def boxed(args: list[Any]) -> Any:
        return f(*args)

    boxed._boxed_call = True  # type: ignore[attr-defined]
    return boxed


def make_boxed_compiler(compiler: Callable[..., Any]) -> Callable[..., Any]:
    """torch's `make_boxed_compiler`: a compiler whose results take one list.

    >>> compiler = make_boxed_compiler(lambda graph, inputs: graph)
    >>> compiler(lambda x: (x,), [1])([5])
    (5,)
    """

    @functools.wraps(compiler, updated=())
    def boxing(graph_module: Any, example_inputs: Sequence[Any]) -> Callable[[list[Any]], Any]:
        return make_boxed_func(compiler(graph_module, example_inputs))

    return boxing


compiled_function = aot_function  # functorch's names for them
compiled_module = aot_module
