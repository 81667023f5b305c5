"""Models that look at pictures, and ones that make them."""

from __future__ import annotations

import torch
from torch import nn

from .catalogue import images, model, noise, words


@model("torchvision")
def shufflenet():
    import torchvision

    return torchvision.models.ShuffleNetV2([1, 1, 1], [4, 8, 16, 16, 16], num_classes=5), images(size=64)


@model("torchvision")
def resnet():
    from torchvision.models.resnet import BasicBlock, ResNet

    return ResNet(BasicBlock, [1, 1, 1, 1], num_classes=5, width_per_group=64), images()


@model("timm")
def vision_transformer():
    import timm

    sizes = {"img_size": 32, "patch_size": 8, "embed_dim": 32, "depth": 1, "num_heads": 4, "num_classes": 5}
    return timm.create_model("vit_tiny_patch16_224", **sizes, drop_path_rate=0.2, proj_drop_rate=0.1), images()


@model("timm")
def convnext():
    import timm

    return timm.create_model("convnext_atto", depths=(1,) * 4, dims=(8, 8, 16, 16), num_classes=5), images()


@model("timm")
def swin():
    import timm

    sizes = {"img_size": 32, "window_size": 4, "embed_dim": 16, "depths": (2,), "num_heads": (2,), "num_classes": 5}
    return timm.create_model("swin_tiny_patch4_window7_224", **sizes), images()


@model("vit-pytorch")
def simple_vision_transformer():
    from vit_pytorch import SimpleViT

    return SimpleViT(image_size=32, patch_size=8, num_classes=5, dim=32, depth=1, heads=2, mlp_dim=64), images()


@model("vit-pytorch")
def convolutional_transformer():
    from vit_pytorch.cct import CCT

    sizes = {"embedding_dim": 32, "n_conv_layers": 1, "num_layers": 1, "num_heads": 2, "num_classes": 5}
    return CCT(img_size=32, kernel_size=7, **sizes, mlp_ratio=2.0, positional_embedding="learnable"), images()


@model("open_clip_torch")
def clip():
    from open_clip.model import CLIP, CLIPTextCfg, CLIPVisionCfg

    seen = CLIPVisionCfg(layers=1, width=32, head_width=16, patch_size=8, image_size=32)
    read = CLIPTextCfg(context_length=12, vocab_size=61, width=32, heads=2, layers=1)
    return CLIP(32, seen, read), lambda n: (noise(n, 3, 32, 32), words(n))


@model("segmentation_models_pytorch")
def segmentation_unet():
    import segmentation_models_pytorch as smp

    sizes = {"encoder_depth": 3, "decoder_channels": (16, 8, 8), "encoder_weights": None}
    return smp.Unet("resnet18", **sizes, classes=2), images()


@model("efficientnet_pytorch")
def efficientnet():
    from efficientnet_pytorch import EfficientNet
    from efficientnet_pytorch.utils import BlockDecoder, GlobalParams

    blocks = BlockDecoder.decode(["r1_k3_s11_e1_i8_o8_se0.25", "r2_k3_s22_e4_i8_o16_se0.25"])
    names = GlobalParams._fields
    given = {"width_coefficient": 0.25, "depth_coefficient": 1.0, "image_size": 32, "dropout_rate": 0.2}
    given |= {"num_classes": 5, "batch_norm_momentum": 0.99, "batch_norm_epsilon": 1e-3, "drop_connect_rate": 0.2}
    given |= {"depth_divisor": 8, "min_depth": None, "include_top": True}
    return EfficientNet(blocks, GlobalParams(**{name: given[name] for name in names})), images()


@model("mlp-mixer-pytorch", by_inductor=True)
def mixer():
    from mlp_mixer_pytorch import MLPMixer

    return MLPMixer(image_size=32, channels=3, patch_size=8, dim=32, depth=1, num_classes=5, dropout=0.1), images()


@model("soft-moe-pytorch", by_inductor=True)
def soft_mixture_of_experts():
    from soft_moe_pytorch import SoftMoE

    return SoftMoE(dim=16, seq_len=12, num_experts=3), lambda n: (noise(n, 12, 16),)


@model("perceiver-pytorch")
def perceiver():
    from perceiver_pytorch import Perceiver

    sizes = {"depth": 1, "num_latents": 8, "latent_dim": 16, "cross_heads": 1, "latent_heads": 2, "cross_dim_head": 8}
    given = {"input_channels": 3, "input_axis": 2, "num_freq_bands": 4, "max_freq": 10.0, "num_classes": 5}
    return Perceiver(**given, **sizes, latent_dim_head=8, attn_dropout=0.1), lambda n: (noise(n, 8, 8, 3),)


@model("diffusers")
def diffusion_unet():
    from diffusers import UNet2DModel

    blocks = {"down_block_types": ("DownBlock2D", "AttnDownBlock2D"), "up_block_types": ("AttnUpBlock2D", "UpBlock2D")}
    sizes = {"sample_size": 16, "block_out_channels": (8, 16), "layers_per_block": 1, "norm_num_groups": 4}
    made = UNet2DModel(in_channels=3, out_channels=3, **sizes, **blocks, attention_head_dim=8, dropout=0.1)
    return made, lambda n: (noise(n, 3, 16, 16), torch.arange(n) * 7)


@model("diffusers")
def autoencoder():
    from diffusers import AutoencoderKL

    blocks = {"down_block_types": ("DownEncoderBlock2D",) * 2, "up_block_types": ("UpDecoderBlock2D",) * 2}
    made = AutoencoderKL(**blocks, block_out_channels=(8, 16), layers_per_block=1, norm_num_groups=4, sample_size=16)
    return made, lambda n: {"sample": noise(n, 3, 16, 16), "sample_posterior": True}


@model("diffusers")
def diffusion_transformer():
    from diffusers import DiTTransformer2DModel

    sizes = {"num_attention_heads": 2, "attention_head_dim": 8, "num_layers": 1, "sample_size": 8, "patch_size": 2}
    made = DiTTransformer2DModel(**sizes, in_channels=4, norm_num_groups=4, num_embeds_ada_norm=10)
    return made, lambda n: {
        "hidden_states": noise(n, 4, 8, 8),
        "timestep": torch.arange(n),
        "class_labels": torch.arange(n),
    }


@model("monai")
def volumes_unet():
    from monai.networks.nets import UNet

    sizes = {"channels": (4, 8, 8), "strides": (2, 2), "num_res_units": 1}
    return UNet(spatial_dims=3, in_channels=1, out_channels=2, **sizes, dropout=0.1), images(1, 8, 3)


@model("vector-quantize-pytorch")
def codebook_with_moving_averages():
    from vector_quantize_pytorch import VectorQuantize

    made = VectorQuantize(dim=8, codebook_size=16, decay=0.8, threshold_ema_dead_code=1)
    return nn.Sequential(nn.Linear(6, 8), made), lambda n: (noise(n, 10, 6),)


@model("vector-quantize-pytorch")
def residual_codebooks():
    from vector_quantize_pytorch import ResidualFSQ

    made = nn.Sequential(nn.Linear(6, 8), ResidualFSQ(dim=8, levels=[5, 3], num_quantizers=2))
    return made, lambda n: (noise(n, 10, 6),)


@model("torch", by_inductor=True, in_ci=True)
def variational_autoencoder():
    class Autoencoder(nn.Module):
        def __init__(self):
            super().__init__()
            layers = [nn.Conv2d(1, 4, 3, 2, 1), nn.BatchNorm2d(4), nn.ReLU(inplace=True), nn.Flatten()]
            self.inward = nn.Sequential(*layers)
            self.mean, self.spread = nn.Linear(64, 3), nn.Linear(64, 3)
            self.outward = nn.Sequential(nn.Linear(3, 64), nn.Unflatten(1, (4, 4, 4)), nn.ConvTranspose2d(4, 1, 2, 2))

        def forward(self, picture):
            hidden = self.inward(picture)
            mean, spread = self.mean(hidden), self.spread(hidden)
            drawn = self.outward(mean + torch.randn_like(mean) * (spread / 2).exp())
            return nn.functional.mse_loss(drawn, picture) + 0.1 * (mean.square() + spread.exp() - spread).mean()

    return Autoencoder(), images(1, 8)


@model("torch", in_ci=True)
def spectral_and_weight_norm():
    layers = [nn.utils.parametrizations.spectral_norm(nn.Conv2d(3, 4, 3)), nn.LeakyReLU(0.1), nn.InstanceNorm2d(4)]
    last = nn.utils.parametrizations.weight_norm(nn.Linear(4, 2))
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), last), images(size=8)
