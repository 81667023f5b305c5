"""What is trained: a small transformer, split in the ways that torch.distributed offers.

A program is `program(compiled, step)`. `compiled(module)` is torch.compile with some backend, or the module itself;
`step(loss, tensors)` is called in each of three optimizer steps with what is to be the same in both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import apply_activation_checkpointing
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
from torch.distributed.tensor import parallel as tp
from torch.nn.parallel import DistributedDataParallel

Compile = Callable[[Any], Any]
Step = Callable[[Any, Iterable[torch.Tensor]], None]
WORDS, WIDTH, HEADS, LENGTH, BATCH, STEPS = 16, 16, 4, 8, 4, 3


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.wq, self.wk, self.wv = (nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(3))
        self.wo = nn.Linear(WIDTH, WIDTH, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows, length, _ = x.shape
        q, k, v = (
            w(x).view(rows, length, -1, WIDTH // HEADS).transpose(1, 2)  # under tensor parallelism, fewer heads
            for w in (self.wq, self.wk, self.wv)
        )
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.wo(mixed.transpose(1, 2).reshape(rows, length, -1))


class FeedForward(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.w1, self.w2 = nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.w2(F.gelu(self.w1(x)))


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.attention, self.feed_forward = Attention(), FeedForward()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.norm1(x))
        return x + self.feed_forward(self.norm2(x))


class Model(nn.Module):
    """Returns the logits, or with `labels` the loss and the logits, as models of Hugging Face do."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(WORDS, WIDTH)
        self.layers = nn.ModuleList(Block() for _ in range(2))
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, WORDS)

    def forward(self, tokens: torch.Tensor, labels: torch.Tensor | None = None) -> Any:
        x = self.embed(tokens)
        for layer in self.layers:
            x = layer(x)
        logits = self.head(self.norm(x))
        return logits if labels is None else (cross_entropy(logits, labels), logits)


def cross_entropy(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(logits.flatten(0, 1), labels.flatten())


def model() -> Model:
    """The same on all ranks."""
    torch.manual_seed(0)
    return Model()


def batch(number: int, rank: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(100 * rank + number)
    return torch.randint(0, WORDS, (BATCH, LENGTH), generator=generator)


def mesh(*shape: int, names: tuple[str, ...] = ("ranks",)) -> DeviceMesh:
    return init_device_mesh("cpu", shape or (dist.get_world_size(),), mesh_dim_names=names)


def full(tensors: Iterable[torch.Tensor]) -> list[torch.Tensor]:
    return [t.full_tensor() if isinstance(t, DTensor) else t for t in tensors]


def train(
    module: nn.Module,
    loss_of: Callable[[torch.Tensor, int], torch.Tensor],
    step: Step,
    *,
    data_rank: int | None = None,
    clip: bool = False,
    before: Callable[[int], None] = lambda _: None,
) -> None:
    """Three steps of AdamW. `data_rank`: whose data, where all ranks work on one batch."""
    optimizer = torch.optim.AdamW(module.parameters(), lr=0.01)
    for number in range(STEPS):
        before(number)
        loss = loss_of(batch(number, dist.get_rank() if data_rank is None else data_rank), number)
        loss.backward()
        norm = [torch.nn.utils.clip_grad_norm_(module.parameters(), 0.5)] if clip else []
        gradients = full(p.grad for p in module.parameters() if p.grad is not None)
        optimizer.step()
        optimizer.zero_grad()
        step(loss.detach(), [*full(norm), *gradients, *full(p.detach() for p in module.parameters())])


def ddp(compiled: Compile, step: Step, **options: Any) -> None:
    module = DistributedDataParallel(model(), **options)
    run = compiled(module)
    train(module, lambda tokens, _: cross_entropy(run(tokens), tokens), step, clip=True)


def ddp_in_python(compiled: Compile, step: Step) -> None:
    """DDP whose reducer is hooks in Python, which a captured backward contains."""
    with torch._dynamo.config.patch(optimize_ddp="python_reducer"):
        ddp(compiled, step)


def ddp_around(compiled: Compile, step: Step) -> None:
    """The compiled module inside DistributedDataParallel."""
    inner = model()
    run = DistributedDataParallel(compiled(inner))
    train(inner, lambda tokens, _: cross_entropy(run(tokens), tokens), step)


def ddp_static(compiled: Compile, step: Step) -> None:
    ddp(compiled, step, static_graph=True)


def ddp_in_buckets(compiled: Compile, step: Step) -> None:
    """Dynamo splits the graph, one part for each bucket of gradients, and compiles each part on FakeTensors."""
    with mock.patch.object(dist, "_DEFAULT_FIRST_BUCKET_BYTES", 4096):  # of 1 MB, more than the whole model
        ddp(compiled, step, bucket_cap_mb=0.005)


def ddp_accumulating(compiled: Compile, step: Step) -> None:
    """Gradients of two batches, those of the first under `no_sync`."""
    module = DistributedDataParallel(model())
    run = compiled(module)

    def loss_of(tokens: torch.Tensor, number: int) -> torch.Tensor:
        with module.no_sync():
            first = batch(number + 50, dist.get_rank())
            cross_entropy(run(first), first).backward()
        return cross_entropy(run(tokens), tokens)

    train(module, loss_of, step)


def sharded(*, layers: bool, **options: Any) -> Model:
    made = model()
    whole = mesh()
    for layer in made.layers if layers else ():
        fully_shard(layer, mesh=whole, **options)
    fully_shard(made, mesh=whole, **options)
    return made


def fsdp_layers(compiled: Compile, step: Step) -> None:
    module = sharded(layers=True)
    run = compiled(module)
    train(module, lambda tokens, _: cross_entropy(run(tokens), tokens), step, clip=True)


def fsdp_whole(compiled: Compile, step: Step) -> None:
    module = sharded(layers=False)
    run = compiled(module)
    train(module, lambda tokens, _: cross_entropy(run(tokens), tokens), step)


def fsdp_loss_and_logits(compiled: Compile, step: Step) -> None:
    """The root's hooks are on both results, and the loss comes from the logits."""
    module = sharded(layers=False)
    run = compiled(module)
    train(module, lambda tokens, _: run(tokens, tokens)[0], step)


def fsdp_each_layer_compiled(compiled: Compile, step: Step) -> None:
    """As torch recommends: the blocks are compiled, and then sharded."""
    module = model()
    whole = mesh()
    for place, layer in enumerate(module.layers):
        module.layers[place] = fully_shard(compiled(layer), mesh=whole)
    fully_shard(module, mesh=whole)
    train(module, lambda tokens, _: cross_entropy(module(tokens), tokens), step)


def fsdp_kept_unsharded(compiled: Compile, step: Step) -> None:
    """The parameters stay whole between forward and backward."""
    module = sharded(layers=True, reshard_after_forward=False)
    run = compiled(module)
    train(module, lambda tokens, _: run(tokens, tokens)[0], step)


def fsdp_mixed_precision(compiled: Compile, step: Step) -> None:
    module = sharded(layers=True, mp_policy=MixedPrecisionPolicy(torch.bfloat16, torch.float32))
    run = compiled(module)
    train(module, lambda tokens, _: cross_entropy(run(tokens).float(), tokens), step)


def fsdp_accumulating(compiled: Compile, step: Step) -> None:
    """Gradients of two batches, reduced after the second."""
    module = sharded(layers=True)
    run = compiled(module)

    def loss_of(tokens: torch.Tensor, number: int) -> torch.Tensor:
        module.set_requires_gradient_sync(False)
        first = batch(number + 50, dist.get_rank())
        cross_entropy(run(first), first).backward()
        module.set_requires_gradient_sync(True)
        return cross_entropy(run(tokens), tokens)

    train(module, loss_of, step)


def fsdp_checkpointed(compiled: Compile, step: Step) -> None:
    """The blocks' activations are computed again in the backward."""
    module = model()
    whole = mesh()
    apply_activation_checkpointing(module, check_fn=lambda part: isinstance(part, Block))
    for layer in module.layers:
        fully_shard(layer, mesh=whole)
    fully_shard(module, mesh=whole)
    run = compiled(module)
    train(module, lambda tokens, _: run(tokens, tokens)[0], step)


def fsdp_state(compiled: Compile, step: Step) -> None:
    """What a checkpoint would hold, between the steps."""
    module = sharded(layers=True)
    run = compiled(module)

    def loss_of(tokens: torch.Tensor, number: int) -> torch.Tensor:
        state = get_model_state_dict(module, options=StateDictOptions(full_state_dict=True))
        step(None, list(state.values()))
        return cross_entropy(run(tokens), tokens)

    train(module, loss_of, step)


def plan_of_tensors(module: Model, whole: DeviceMesh) -> None:
    for layer in module.layers:
        tp.parallelize_module(
            layer,
            whole,
            {
                "attention.wq": tp.ColwiseParallel(),
                "attention.wk": tp.ColwiseParallel(),
                "attention.wv": tp.ColwiseParallel(),
                "attention.wo": tp.RowwiseParallel(),
                "feed_forward.w1": tp.ColwiseParallel(),
                "feed_forward.w2": tp.RowwiseParallel(),
            },
        )


def tensor_parallel(compiled: Compile, step: Step) -> None:
    module = model()
    plan_of_tensors(module, mesh())
    run = compiled(module)
    train(module, lambda tokens, _: cross_entropy(run(tokens), tokens), step, data_rank=0)


def sequence_parallel(compiled: Compile, step: Step) -> None:
    """Norms and residuals work on a part of the sequence."""
    module = model()
    whole, split = mesh(), Shard(1)
    tp.parallelize_module(
        module,
        whole,
        {
            "embed": tp.RowwiseParallel(input_layouts=Replicate(), output_layouts=split, use_local_output=True),
            "norm": tp.SequenceParallel(),
            "head": tp.ColwiseParallel(input_layouts=split, output_layouts=Replicate()),
        },
    )
    for layer in module.layers:
        tp.parallelize_module(
            layer,
            whole,
            {
                "norm1": tp.SequenceParallel(),
                "attention": tp.PrepareModuleInput(input_layouts=(split,), desired_input_layouts=(Replicate(),)),
                "attention.wq": tp.ColwiseParallel(),
                "attention.wk": tp.ColwiseParallel(),
                "attention.wv": tp.ColwiseParallel(),
                "attention.wo": tp.RowwiseParallel(output_layouts=split),
                "norm2": tp.SequenceParallel(),
                "feed_forward": tp.PrepareModuleInput(input_layouts=(split,), desired_input_layouts=(Replicate(),)),
                "feed_forward.w1": tp.ColwiseParallel(),
                "feed_forward.w2": tp.RowwiseParallel(output_layouts=split),
            },
        )
    run = compiled(module)
    train(module, lambda tokens, _: cross_entropy(run(tokens), tokens), step, data_rank=0)


def fsdp_and_tensor_parallel(compiled: Compile, step: Step) -> None:
    """Two dimensions of ranks."""
    whole = mesh(dist.get_world_size() // 2, 2, names=("data", "tensor"))
    module = model()
    plan_of_tensors(module, whole["tensor"])
    for layer in module.layers:
        fully_shard(layer, mesh=whole["data"])
    fully_shard(module, mesh=whole["data"])
    run = compiled(module)
    train(module, lambda tokens, _: cross_entropy(run(tokens), tokens), step, data_rank=dist.get_rank() // 2)


class OnDTensors(nn.Module):
    """Operators on distributed tensors, and changes of where their parts lie."""

    def __init__(self, whole: DeviceMesh) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.columns = nn.Parameter(distribute_tensor(torch.randn(WIDTH, 2 * WIDTH), whole, [Shard(1)]))
        self.rows = nn.Parameter(distribute_tensor(torch.randn(2 * WIDTH, WIDTH), whole, [Shard(0)]))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = torch.relu(x @ self.columns)
        out = (hidden @ self.rows).redistribute(placements=[Replicate()])
        return (out.sin() + out.redistribute(placements=[Shard(0)]).redistribute(placements=[Replicate()])).to_local()


def dtensor(compiled: Compile, step: Step) -> None:
    whole = mesh()
    module = OnDTensors(whole)
    run = compiled(module)

    def loss_of(tokens: torch.Tensor, number: int) -> torch.Tensor:
        values = torch.randn(BATCH, WIDTH, generator=torch.Generator().manual_seed(number))
        return run(distribute_tensor(values, whole, [Replicate()])).square().mean()

    train(module, loss_of, step, data_rank=0)


def dtensor_inside(compiled: Compile, step: Step) -> None:
    """DTensors that are made of local tensors inside what is compiled, a partial sum among them."""
    whole = mesh()
    module = nn.Linear(WIDTH, WIDTH)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.fill_(0.1)

    def forward(x: torch.Tensor) -> torch.Tensor:
        local = module(x)
        summed = DTensor.from_local(local, whole, [Partial()]).redistribute(placements=[Replicate()])
        return summed.to_local().tanh()

    run = compiled(forward)

    def loss_of(tokens: torch.Tensor, number: int) -> torch.Tensor:
        generator = torch.Generator().manual_seed(100 * dist.get_rank() + number)
        return run(torch.randn(BATCH, WIDTH, generator=generator)).square().mean()

    train(module, loss_of, step)


def pipelined(compiled: Compile, step: Step, schedule: Any) -> None:
    """One stage a rank; each is compiled."""
    world, rank = dist.get_world_size(), dist.get_rank()
    torch.manual_seed(0)
    parts = [nn.Sequential(Block(), Block()) for _ in range(world)]
    module = parts[rank]
    stage = PipelineStage(compiled(module), rank, world, torch.device("cpu"))
    run = schedule(stage, n_microbatches=world, loss_fn=F.mse_loss)
    optimizer = torch.optim.AdamW(module.parameters(), lr=0.01)
    for number in range(STEPS):
        generator = torch.Generator().manual_seed(number)
        x, target = (torch.randn(BATCH, LENGTH, WIDTH, generator=generator) for _ in range(2))
        losses: list[torch.Tensor] = []
        if rank == 0:
            run.step(x, **({"target": target, "losses": losses} if world == 1 else {}))
        elif rank == world - 1:
            run.step(target=target, losses=losses)
        else:
            run.step()
        gradients = [p.grad.clone() for p in module.parameters() if p.grad is not None]
        optimizer.step()
        optimizer.zero_grad()
        step(torch.stack(losses).detach() if losses else None, [*gradients, *(p.detach() for p in module.parameters())])


def gpipe(compiled: Compile, step: Step) -> None:
    pipelined(compiled, step, ScheduleGPipe)


def one_forward_one_backward(compiled: Compile, step: Step) -> None:
    pipelined(compiled, step, Schedule1F1B)


def collectives(compiled: Compile, step: Step) -> None:
    """Functional collectives among the operators, with their gradients where they have some."""
    from torch.distributed._functional_collectives import all_gather_tensor, all_reduce, reduce_scatter_tensor

    module = nn.Linear(WIDTH, WIDTH)
    group = dist.group.WORLD
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.fill_(0.1)

    def forward(x: torch.Tensor) -> torch.Tensor:
        out = module(x).sin()
        with torch.no_grad():
            scale = all_reduce(out.abs().max(), "max", group)
            gathered = all_gather_tensor(out, 0, group)
            mean = reduce_scatter_tensor(gathered, "sum", 0, group).mean()
        return out / scale + mean

    run = compiled(forward)

    def loss_of(tokens: torch.Tensor, number: int) -> torch.Tensor:
        generator = torch.Generator().manual_seed(100 * dist.get_rank() + number)
        return run(torch.randn(BATCH, WIDTH, generator=generator)).square().mean()

    train(module, loss_of, step)


PROGRAMS: dict[str, Callable[[Compile, Step], None]] = {
    "DDP": ddp,
    "DDP, static graph": ddp_static,
    "DDP, several buckets": ddp_in_buckets,
    "DDP around the compiled module": ddp_around,
    "DDP, no_sync": ddp_accumulating,
    "FSDP2, per layer": fsdp_layers,
    "FSDP2, whole": fsdp_whole,
    "FSDP2, loss and logits": fsdp_loss_and_logits,
    "FSDP2, each layer compiled": fsdp_each_layer_compiled,
    "FSDP2, not resharded": fsdp_kept_unsharded,
    "FSDP2, mixed precision": fsdp_mixed_precision,
    "FSDP2, accumulating": fsdp_accumulating,
    "FSDP2, activation checkpointing": fsdp_checkpointed,
    "FSDP2, state between steps": fsdp_state,
    "FSDP2 and tensor parallel": fsdp_and_tensor_parallel,
    "tensor parallel": tensor_parallel,
    "sequence parallel": sequence_parallel,
    "DTensor": dtensor,
    "DTensor, made inside": dtensor_inside,
    "pipeline, GPipe": gpipe,
    "pipeline, 1F1B": one_forward_one_backward,
    "functional collectives": collectives,
}
ON_INDUCTOR = ("DDP", "FSDP2, per layer", "FSDP2, loss and logits", "tensor parallel", "pipeline, 1F1B")
FOR_WHOLE_BACKWARDS = {"DDP, reducer in Python": ddp_in_python}  # these are for whole backwards alone
