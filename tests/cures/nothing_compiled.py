"""Functions of which nothing is compiled."""

from __future__ import annotations

import torch

from aotviz.explain.cures import break_cures as cures
from tests import one_rank
from tests.cures.breaks import excluded
from tests.cures.programs import Calls, Effect, compiled, program, watched


def no_graphs(calls: Calls, cured: bool) -> Effect:
    """Whether something was compiled, and no graph was made of it."""
    recording, result = watched(calls, cured)
    said = recording.explain().sentences if len(recording) else ()
    nothing = [text for text in said if text.startswith("Nothing was compiled")]
    return Effect(len(nothing), "jobs without any graph", recording, result)


@program(
    "a model that a library wraps",
    cures.NO_GRAPH,
    "`DistributedDataParallel(torch.compile(model))`",
    ("pytorch/pytorch#140416",),
    no_graphs,
)
def a_wrapped_model(cured: bool) -> object:
    with one_rank.alone():
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.ReLU())
        wrap = torch.nn.parallel.DistributedDataParallel
        return (wrap(compiled(model)) if cured else compiled(wrap(model)))(torch.ones(2, 3)).detach()


@program(
    "a model of layers that torch leaves out of graphs",
    cures.LIBRARY_ALONE,
    "Compile the parts of the model without this",
    (),
    no_graphs,
)
def a_model_of_fake_quantizers(cured: bool) -> object:
    torch.manual_seed(0)
    linear = torch.nn.Linear(3, 3)
    model = torch.nn.Sequential(compiled(linear) if cured else linear, torch.ao.quantization.FakeQuantize())
    return (model if cured else compiled(model))(torch.ones(2, 3)).detach()


@program("a function without tensors", cures.NO_TENSORS, "Do not compile", ("pytorch/pytorch#181817",), no_graphs)
def no_tensors(cured: bool) -> object:
    def tokens(text: str) -> list[int]:
        return [ord(letter) for letter in text]

    return (tokens if cured else compiled(tokens))("two words")


@program("nothing but excluded code", cures.DISABLED, "Remove the `disable`", ("pytorch/pytorch#119186",), no_graphs)
def no_graph_at_all(cured: bool) -> object:
    return compiled((lambda x: x * 2) if cured else (lambda x: excluded(x)))(torch.ones(2))
