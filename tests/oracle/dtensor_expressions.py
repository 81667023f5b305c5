"""Programs over DTensors of one rank, one a line: see `expressions.py`."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as funcol
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
from torch.distributed.tensor import ones as dtensor_ones
from torch.distributed.tensor.experimental import local_map

PROGRAMS = """
d * 2
s * 2
s.sin() + s
d * d.sum()
d @ e
s @ e
F.linear(d, e).relu()
F.linear(s, e)
d.to_local()
d.to_local() * x
s.to_local().sin()
s.full_tensor()
s.full_tensor() * 2
(s * 2).full_tensor()
(s * 2).to_local()
(d * 2).to_local(), d.sin()
DTensor.from_local(x, mesh, [Replicate()])
DTensor.from_local(x * 2, mesh, [Replicate()]).sin()
DTensor.from_local(x, mesh, [Shard(0)]).sum()
DTensor.from_local(x * 2, mesh, [Shard(0)]).to_local() * 3
DTensor.from_local(x, mesh, [Partial()]).redistribute(mesh, [Replicate()])
d.redistribute(mesh, [Shard(0)])
d.redistribute(mesh, [Shard(0)]) * 2
s.redistribute(mesh, [Replicate()]) * 2
s.redistribute(mesh, [Replicate()]).to_local()
s.redistribute(placements=[Shard(1)]).sin()
d.sum()
d.sum(0)
s.sum(0)
s.mean()
s.t()
s.t() * 2
d.view(12, 2)
d.reshape(-1)
d.view(12, 2) * 2
d.transpose(0, 1).contiguous()
d[:2]
d[1] * 2
d.chunk(2)
d.split(2)[0] * 2
d.unbind()
d.permute(1, 0) @ s
torch.cat([d, d * 2])
torch.stack([d, d])
F.softmax(s, -1)
F.layer_norm(d, (6,))
F.layer_norm(s, (6,))
F.gelu(s)
F.dropout(d, 0.0)
F.dropout(s, 0.5, training=False)
F.cross_entropy(d, y)
F.mse_loss(d, s)
d.clone()
d.detach() * x2
d.to(torch.float64)
d.to(torch.bfloat16).sum()
d.mul_(2)
s.mul_(2)
d.sin().mul_(2)
d.add_(1), d.sum()
d.view(12, 2).mul_(2), d
(d * 2).t().mul_(3)
d.sin(), d.sin().to_local()
(lambda r: (r, r.to_local()))(d.sin())
(lambda r: (r, r))(d.sin())
(lambda r: (r, r.t()))(d.sin())
(lambda r: (r.to_local(), r.to_local().t()))(d.sin())
(lambda r: (r.to_local()[:2], r.to_local()[2:]))(d * 2)
(d, d.t())
d, s
torch.ones_like(d) * d
torch.zeros_like(s)
torch.full_like(s, 3.0) * s
torch.where(d > 0, d, d * 2)
d.masked_fill(d > 0, 0.0)
d.abs().sqrt().exp()
d.max()
d.max(0)[0]
d.norm()
d.cumsum(0)
p * 2
p.redistribute(mesh, [Replicate()]) * 2
p.sum()
p.full_tensor() * 2
p.to_local() * 2
t2 * 2
t2.sum(0)
t2.redistribute(mesh2, [Replicate(), Replicate()]) * 2
t2.full_tensor().sin()
t2.t() @ t2
d * 3.0
d.to_local() + x
d.grad_fn is None
d.shape[0] * d
d.placements == (Replicate(),)
d.device_mesh.size() * d
d.to_local().t()
d.to_local().view(-1).mul_(2)
s.to_local().add_(1)
torch.autograd.grad((d * d).sum(), d)[0]
torch.autograd.grad((s * s).sum().full_tensor(), s)[0]
torch.utils.checkpoint.checkpoint(lambda a: a.sin().cos(), d, use_reentrant=False)
distribute_tensor(x * 2, mesh, [Shard(0)])
distribute_tensor(x * 2, mesh, [Replicate()]).sin()
d.to_local(grad_placements=[Replicate()]) * 2
d.to_local(grad_placements=[Partial()]) * 2
DTensor.from_local(x * 2, mesh, [Replicate()], run_check=False).redistribute(mesh, [Shard(1)]).to_local()
d.expand(2, 4, 6)
d.unsqueeze(0) * 2
d.sum(0, keepdim=True).expand(4, 6)
F.embedding(i, e)
torch.einsum('ij,kj->ik', d, e)
torch.addmm(b, d, e.t())
torch.bmm(d.unsqueeze(0), d.t().unsqueeze(0))
F.scaled_dot_product_attention(*[d.view(1, 2, 2, 6)] * 3)
d.tril()
d.argmax(), d * 2
d.topk(2)[0]
F.linear(F.gelu(F.linear(d, e.redistribute(mesh, [Shard(0)]))), e.redistribute(mesh, [Shard(1)])).full_tensor()
DTensor.from_local(x, mesh, [Shard(0)]).redistribute(mesh, [Replicate()]).to_local().relu()
d * torch.rsqrt(d.pow(2).mean(-1, keepdim=True) + 1e-6) * b
torch.cat([-d[..., 3:], d[..., :3]], dim=-1) * 2
torch.utils.checkpoint.checkpoint(lambda a: F.linear(a, e).relu(), s, use_reentrant=False)
(d * 2).full_tensor().mul_(2)
d.full_tensor().mul_(2)
distribute_tensor(x.detach(), mesh, [Replicate()]).requires_grad_() * d
distribute_tensor(x.detach(), mesh, [Shard(0)]) * s
torch.nn.utils.get_total_norm([d, s])
d.detach().add_(s.detach(), alpha=-0.1), d * 2
torch._foreach_norm([d, s])
torch.empty_like(d).copy_(d)
d.redistribute(mesh, [Partial()])
(lambda y: (dist.all_reduce(y), y)[1])(x.detach() * 2) * x
(lambda y: (dist.broadcast(y, 0), y)[1])(x.detach() * 2) * x
dist.all_reduce(plain), plain * x
funcol.all_reduce(x * 2, 'sum', mesh) * 3
funcol.all_gather_tensor_autograd(x * 2, 0, (mesh, 0)).sin()
d.data.mul_(2), d * 1
d.view(-1).to_local()
d[:1].full_tensor()
(lambda q: (q.to_local(), q.t().to_local()))(DTensor.from_local(x, mesh, [Replicate()]))
local_map(torch.mm, [Partial()], ([Replicate()], [Replicate()]), device_mesh=mesh)(d, e)
dtensor_ones(4, 6, device_mesh=mesh, placements=[Shard(0)]) * s
distribute_tensor(x * 2, mesh2, [Shard(0), Replicate()]) * t2
distribute_tensor(x.detach(), mesh, [Shard(1)]).redistribute(mesh, [Shard(0)]).to_local() * x
distribute_tensor(torch.arange(6.0), mesh, [Replicate()]) + d
""".strip().splitlines()


def scope(mesh: Any, mesh2: Any) -> dict[str, Any]:
    own = {one.__name__: one for one in (DTensor, Partial, Replicate, Shard, distribute_tensor)}
    more = {"dist": dist, "funcol": funcol, "dtensor_ones": dtensor_ones, "local_map": local_map}
    return {"torch": torch, "F": torch.nn.functional, "mesh": mesh, "mesh2": mesh2, **own, **more}


def inputs(mesh: Any, mesh2: Any) -> dict[str, Any]:
    random = torch.Generator().manual_seed(0)
    rand = lambda *size: torch.rand(*size, generator=random)  # noqa: E731

    def placed(local: torch.Tensor, *placements: Any) -> Any:
        return DTensor.from_local(local, mesh if len(placements) == 1 else mesh2, placements).detach()

    return {
        "d": placed(rand(4, 6), Replicate()).requires_grad_(),
        "s": placed(rand(4, 6), Shard(0)).requires_grad_(),
        "e": placed(rand(6, 6), Replicate()).requires_grad_(),
        "p": placed(rand(4, 6), Partial()).requires_grad_(),
        "t2": placed(rand(4, 6), Shard(0), Replicate()).requires_grad_(),
        "b": placed(rand(6), Replicate()).requires_grad_(),
        "x": rand(4, 6).requires_grad_(),
        "plain": rand(4, 6),
        "x2": placed(rand(4, 6), Replicate()),
        "i": placed(torch.tensor([1, 2, 3]), Replicate()),
        "y": placed(torch.tensor([1, 2, 3, 0]), Replicate()),
    }
