"""Graph breaks of the common kinds, some of them hit from several places."""

import logging

import torch
import torch._dynamo

log = logging.getLogger("corpus")


def compiled(function):
    return torch.compile(function, backend="eager")


@compiled
def prints(x):
    y = x * 2
    print("value", y.shape)
    return y + 1


@compiled
def branches_on_data(x):
    if x.sum() > 0:
        return x + 1
    return x - 1


@compiled
def leaves_torch(x):
    y = x.relu()
    array = y.numpy(force=True)
    rows = y.tolist()
    return x + array.sum() + len(rows)


@torch._dynamo.disable
def not_compiled(x):
    return x + 2


@compiled
def calls_disabled(x):
    y = x * 3
    return not_compiled(y) * 2


@compiled
def asks_for_a_number(x):
    largest = int(x.max())
    return x[:largest]


@compiled
def logs_each_layer(x):
    for _ in range(3):
        x = x * 2
        log.warning("layer")
    return x


@compiled
def breaks_on_purpose(x):
    y = x + 1
    torch._dynamo.graph_break()
    return y * 2


@compiled
def opens_a_file(x):
    y = x * 2
    with open(__file__) as file:
        file.read(1)
    return y


x = torch.arange(4.0)
for function in (
    prints,
    branches_on_data,
    leaves_torch,
    calls_disabled,
    asks_for_a_number,
    logs_each_layer,
    breaks_on_purpose,
    opens_a_file,
):
    function(x)
branches_on_data(-x)
