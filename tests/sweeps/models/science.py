"""Models of graphs, molecules, tables, densities and differential equations."""

from __future__ import annotations

import torch
from torch import nn

from .catalogue import model, noise, words


def ring(n: int) -> torch.Tensor:
    """Edges of a ring of 3 n nodes, both ways."""
    nodes = torch.arange(3 * n)
    one_way = torch.stack([nodes, nodes.roll(1)])
    return torch.cat([one_way, one_way.flip(0)], 1)


@model("torch-geometric", by_inductor=True)
def graph_convolutions():
    from torch_geometric.nn import GCN

    return GCN(5, 8, 2, out_channels=3, dropout=0.1, norm="batch_norm"), lambda n: (noise(3 * n, 5), ring(n))


@model("torch-geometric")
def graph_attention():
    from torch_geometric.nn import GAT

    return GAT(5, 8, 2, out_channels=4, heads=2, v2=True, dropout=0.1), lambda n: (noise(3 * n, 5), ring(n))


@model("torch-geometric")
def graph_isomorphism():
    from torch_geometric.nn import GIN

    return GIN(5, 8, 2, out_channels=3, jk="cat"), lambda n: (noise(3 * n, 5), ring(n))


@model("egnn-pytorch", by_inductor=True)
def equivariant_graph():
    from egnn_pytorch import EGNN

    return EGNN(dim=8, m_dim=4, num_nearest_neighbors=3, dropout=0.1), lambda n: (noise(n, 6, 8), noise(n, 6, 3))


@model("e3nn")
def tensor_product():
    from e3nn import o3
    from e3nn.nn import Gate

    gate = Gate("4x0e", [torch.relu], "2x0e", [torch.sigmoid], "2x1o")
    first = o3.FullyConnectedTensorProduct("2x0e + 2x1o", "1x0e + 1x1o", gate.irreps_in)

    class Product(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.gate, self.last = first, gate, o3.Linear(gate.irreps_out, "1x0e")

        def forward(self, features, where):
            seen = o3.spherical_harmonics("1x0e + 1x1o", where, normalize=True, normalization="component")
            return self.last(self.gate(self.first(features, seen)))

    return Product(), lambda n: (noise(n, 8), noise(n, 3))


@model("gpytorch")
def gaussian_process():
    import gpytorch

    class Process(gpytorch.models.ApproximateGP):
        def __init__(self):
            points = noise(6, 2)
            inner = gpytorch.variational.CholeskyVariationalDistribution(6)
            super().__init__(gpytorch.variational.VariationalStrategy(self, points, inner))
            self.mean = gpytorch.means.ConstantMean()
            self.kernel = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel())

        def forward(self, points):
            return gpytorch.distributions.MultivariateNormal(self.mean(points), self.kernel(points))

    class Bound(nn.Module):
        def __init__(self):
            super().__init__()
            self.process, self.likelihood = Process(), gpytorch.likelihoods.GaussianLikelihood()
            self.bound = gpytorch.mlls.VariationalELBO(self.likelihood, self.process, num_data=12)

        def forward(self, points, values):
            return -self.bound(self.process(points), values)

    return Bound(), lambda n: (noise(n, 2), noise(n))


class Likelihood(nn.Module):
    """Minus the mean log probability that a flow gives its input."""

    def __init__(self, flow, log_probability):
        super().__init__()
        self.flow, self.log_probability = flow, log_probability

    def forward(self, values):
        return -self.log_probability(self.flow, values).mean()


@model("nflows", by_inductor=True)
def masked_autoregressive_flow():
    from nflows import distributions, flows, transforms

    layers = [transforms.ReversePermutation(4), transforms.MaskedAffineAutoregressiveTransform(4, 8)]
    made = flows.Flow(transforms.CompositeTransform(layers), distributions.StandardNormal([4]))
    return Likelihood(made, lambda flow, values: flow.log_prob(values)), lambda n: (noise(n, 4),)


@model("zuko")
def spline_flow():
    import zuko

    made = zuko.flows.NSF(4, transforms=1, hidden_features=(8, 8))
    return Likelihood(made, lambda flow, values: flow().log_prob(values)), lambda n: (noise(n, 4),)


@model("torchdiffeq", by_inductor=True)
def ordinary_differential_equation():
    from torchdiffeq import odeint

    class Flow(nn.Module):
        def __init__(self):
            super().__init__()
            self.speed = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 3))

        def forward(self, start):
            return odeint(lambda _, state: self.speed(state), start, torch.linspace(0, 1, 4), method="rk4")[-1]

    return Flow(), lambda n: (noise(n, 3),)


@model("snntorch", by_inductor=True)
def spiking_neurons():
    import snntorch

    class Spikes(nn.Module):
        def __init__(self):
            super().__init__()
            self.inward, self.neuron, self.outward = nn.Linear(5, 8), snntorch.Leaky(beta=0.9), nn.Linear(8, 2)

        def forward(self, seen):
            charge, total = self.neuron.init_leaky(), 0
            for _ in range(3):
                spikes, charge = self.neuron(self.inward(seen), charge)
                total = total + self.outward(spikes)
            return total

    return Spikes(), lambda n: (noise(n, 5),)


@model("siren-pytorch", by_inductor=True)
def implicit_picture():
    from siren_pytorch import SirenNet

    return SirenNet(dim_in=2, dim_hidden=16, dim_out=3, num_layers=2, dropout=0.1), lambda n: (noise(n, 2),)


@model("tab-transformer-pytorch")
def transformer_of_tables():
    from tab_transformer_pytorch import FTTransformer

    sizes = {"dim": 16, "depth": 1, "heads": 2, "dim_head": 8, "attn_dropout": 0.1, "ff_dropout": 0.1}
    made = FTTransformer(categories=(5, 4), num_continuous=3, **sizes)
    return made, lambda n: (words(n, 2) % 4, noise(n, 3))


@model("pytorch-tabnet")
def tabnet():
    from pytorch_tabnet.tab_network import TabNet

    return TabNet(6, 2, n_steps=2, virtual_batch_size=8, group_attention_matrix=torch.eye(6)), lambda n: (noise(n, 6),)


@model("torchfm", by_inductor=True)
def factorization_machine():
    from torchfm.model.dfm import DeepFactorizationMachineModel

    made = DeepFactorizationMachineModel([10, 10, 10], embed_dim=4, mlp_dims=(8,), dropout=0.1)
    return made, lambda n: (words(n, 3, 10),)
