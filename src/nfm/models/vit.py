"""ViT-Lite for 32 px images (Hassani et al. 2021, Compact Transformers, arXiv:2104.05704)."""

from __future__ import annotations

from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nfm.errors import UsageError
from nfm.models.catalogue import MODELS
from nfm.models.initialisation import Law, transformer_law
from nfm.models.network import Network
from nfm.models.task import Task, check_rate


class PatchEmbedding(nn.Module):
    """(B, C, H, W) -> (B, 1 + patches, dim): class token and a linear map of each patch, plus positions."""

    def __init__(self, inputs: int, dim: int, *, side: int, patch: int) -> None:
        super().__init__()
        self.project = nn.Conv2d(inputs, dim, patch, stride=patch)
        self.class_token = nn.Parameter(torch.zeros(1, 1, dim))
        self.positions = nn.Parameter(torch.zeros(1, 1 + (side // patch) ** 2, dim))

    def forward(self, x: Tensor) -> Tensor:
        patches = self.project(x).flatten(2).transpose(1, 2)
        return torch.cat((self.class_token.expand(len(x), -1, -1), patches), dim=1) + self.positions


class Attention(nn.Module):
    """Multi-head self-attention: softmax(q k^T / sqrt(dim / heads)) v, then a linear map.

    For second derivatives choose PyTorch's plain kernel: `torch.nn.attention.sdpa_kernel(SDPBackend.MATH)`.
    """

    def __init__(self, dim: int, *, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.qkv = nn.Linear(dim, 3 * dim, bias=False)
        self.project = nn.Linear(dim, dim)

    def forward(self, x: Tensor) -> Tensor:
        qkv = self.qkv(x).unflatten(-1, (3, self.heads, -1))  # (B, N, 3, heads, dim / heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        share = self.dropout if self.training else 0.0
        mixed = F.scaled_dot_product_attention(q, k, v, dropout_p=share)
        return self.project(mixed.transpose(1, 2).flatten(2))


class Block(nn.Module):
    """x + attention(norm1(x)), then x + mlp(norm2(x)).

    `compact_form`: the second norm replaces the stream, n + mlp(n) with n = norm2(x).
    `drop_branch` is the share of examples that skip a branch (stochastic depth).
    """

    def __init__(
        self, dim: int, *, heads: int, attention_dropout: float, drop_branch: float, compact_form: bool
    ) -> None:
        super().__init__()
        self.drop_branch, self.compact_form = drop_branch, compact_form
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.attention = Attention(dim, heads=heads, dropout=attention_dropout)
        self.mlp = nn.Sequential(nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self._thin(self.attention(self.norm1(x)))
        n = self.norm2(x)
        return (n if self.compact_form else x) + self._thin(self.mlp(n))

    def _thin(self, branch: Tensor) -> Tensor:
        if not (self.training and self.drop_branch):
            return branch
        return branch * F.dropout(branch.new_ones(len(branch), 1, 1), self.drop_branch)


class ViTLite(Network):
    """7 blocks of width 256 with 4 heads on 4x4 patches, MLP x2, a class token and learnable positions.

    The default block is the standard pre-norm one. Compact Transformers' code has `compact_form=True`,
    `attention_dropout=.1` and `stochastic_depth=.1` (rising from 0 in the first block to it in the last).
    """

    default_sites = ("input", "blocks.0", "blocks.1", "blocks.2")
    initial_law: ClassVar[Law] = staticmethod(transformer_law)

    def __init__(
        self,
        task: Task,
        *,
        attention_dropout: float = 0.0,
        stochastic_depth: float = 0.0,
        compact_form: bool = False,
    ) -> None:
        super().__init__(task)
        dim, depth, heads, patch = 256, 7, 4, 4
        side = task.image_side("vit_lite_7_4")
        if side % patch:
            raise UsageError(f"image_size: expected a multiple of the patch, {patch}; got {side}")
        check_rate("attention_dropout", attention_dropout)
        check_rate("stochastic_depth", stochastic_depth)
        self.embed = PatchEmbedding(task.in_channels, dim, side=side, patch=patch)
        self.blocks = nn.ModuleList(
            Block(
                dim,
                heads=heads,
                attention_dropout=attention_dropout,
                drop_branch=stochastic_depth * index / (depth - 1),
                compact_form=compact_form,
            )
            for index in range(depth)
        )
        self.norm = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, task.num_classes)

    def forward(self, x: Tensor) -> Tensor:
        h = self.embed(self.normalise(x))
        for block in self.blocks:
            h = block(h)
        return self.head(self.norm(h)[:, 0])


MODELS.add("vit_lite_7_4", ViTLite)
