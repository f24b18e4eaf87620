"""ViT-Lite against written-out attention, PyTorch's own attention, and its published size."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from nfm.models import build
from nfm.models.vit import Attention, PatchEmbedding


def test_the_published_size() -> None:
    """3.717M in arXiv:2104.05704; to the last parameter with class token, patch bias and no qkv bias."""
    model = build("vit_lite_7_4", num_classes=10)
    assert sum(p.numel() for p in model.parameters()) == 3_716_874
    assert build("vit_lite_7_4", num_classes=10, image_size=64).embed.positions.shape == (1, 257, 256)


def attention_by_loops(layer: Attention, x: Tensor) -> Tensor:
    """softmax(q k^T / sqrt(d)) v, one example and one head at a time."""
    dim = x.shape[-1]
    size = dim // layer.heads
    q, k, v = (x @ layer.qkv.weight[part * dim : (part + 1) * dim].T for part in range(3))
    mixed = torch.empty_like(x)
    for b in range(len(x)):
        for head in range(layer.heads):
            own = slice(head * size, (head + 1) * size)
            scores = torch.softmax(q[b, :, own] @ k[b, :, own].T / math.sqrt(size), dim=-1)
            mixed[b, :, own] = scores @ v[b, :, own]
    return mixed @ layer.project.weight.T + layer.project.bias


def test_attention_equals_loops_and_torch(scramble, generator) -> None:
    layer = scramble(Attention(32, heads=4, dropout=0.0))
    x = torch.randn(3, 9, 32, generator=generator)
    theirs = nn.MultiheadAttention(32, 4, batch_first=True).eval()
    with torch.no_grad():
        theirs.in_proj_weight.copy_(layer.qkv.weight)
        theirs.in_proj_bias.zero_()
        theirs.out_proj.load_state_dict(layer.project.state_dict())
        output = layer(x)
        torch.testing.assert_close(output, attention_by_loops(layer, x), rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(output, theirs(x, x, x)[0], rtol=1e-4, atol=1e-5)
        layer.heads = 2  # negative control: other heads, other output
        assert not torch.allclose(layer(x), output, rtol=1e-3)


def test_patches_are_embedded_in_reading_order(scramble, images) -> None:
    embed = scramble(PatchEmbedding(3, 16, side=8, patch=4))
    x = images(2, 3, 8, 8)
    patches = [x[:, :, i : i + 4, j : j + 4].flatten(1) for i in (0, 4) for j in (0, 4)]
    rows = [patch @ embed.project.weight.flatten(1).T + embed.project.bias for patch in patches]
    expected = torch.stack([embed.class_token[0].expand(2, -1), *rows], dim=1) + embed.positions
    torch.testing.assert_close(embed(x), expected, rtol=1e-4, atol=1e-5)
    assert not torch.allclose(embed(x.transpose(2, 3)), expected, rtol=1e-3)


def reference(model: nn.Module, x: Tensor, *, compact: bool) -> Tensor:
    h = model.embed(model.normalise(x))
    for block in model.blocks:
        h = h + attention_by_loops(
            block.attention, F.layer_norm(h, (256,), block.norm1.weight, block.norm1.bias)
        )
        n = F.layer_norm(h, (256,), block.norm2.weight, block.norm2.bias)
        first, _, second = block.mlp
        wide = F.linear(n, first.weight, first.bias)
        wide = wide * 0.5 * (1 + torch.erf(wide / math.sqrt(2)))  # GELU
        h = (n if compact else h) + F.linear(wide, second.weight, second.bias)
    return model.head(F.layer_norm(h, (256,), model.norm.weight, model.norm.bias)[:, 0])


@pytest.mark.parametrize("compact", [False, True])
def test_forward_equals_the_reference(compact: bool, scramble, images) -> None:
    model = scramble(build("vit_lite_7_4", num_classes=10, image_size=8, compact_form=compact))
    x = images(2, 3, 8, 8)
    with torch.no_grad():
        output = model(x)
        torch.testing.assert_close(output, reference(model, x, compact=compact), rtol=1e-3, atol=1e-3)
        assert not torch.allclose(output, reference(model, x, compact=not compact), rtol=1e-3, atol=1e-3)


def test_stochastic_depth_rises_to_its_rate_and_drops_whole_examples(images) -> None:
    model = build("vit_lite_7_4", num_classes=10, image_size=8, stochastic_depth=0.6)
    assert [round(block.drop_branch, 6) for block in model.blocks] == [0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6]
    branch = torch.ones(4000, 2, 3)
    thinned = model.blocks[-1]._thin(branch)
    dropped = (thinned == 0).all(dim=(1, 2))
    torch.testing.assert_close(thinned[~dropped], torch.full_like(thinned[~dropped], 1 / 0.4))
    assert abs(dropped.float().mean().item() - 0.6) < 5 * math.sqrt(0.24 / 4000)
    assert model.blocks[0]._thin(branch) is branch
    assert model.eval().blocks[-1]._thin(branch) is branch


def test_attention_dropout_acts_in_training_only(images) -> None:
    model = build("vit_lite_7_4", num_classes=10, image_size=8, attention_dropout=0.5)
    x = images(2, 3, 8, 8)
    assert not torch.equal(model(x), model(x))
    model.eval()
    assert torch.equal(model(x), model(x))


def test_second_derivatives_exist_with_the_plain_kernel(images) -> None:
    model = build("vit_lite_7_4", num_classes=2, image_size=8).eval()
    x = images(1, 3, 8, 8).requires_grad_()
    with sdpa_kernel(SDPBackend.MATH):
        (first,) = torch.autograd.grad(model(x).square().sum(), x, create_graph=True)
        (second,) = torch.autograd.grad(first.square().sum(), x)
    assert second.abs().sum() > 0
