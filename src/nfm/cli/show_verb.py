"""``nfm show model NAME``: stages, shapes, parameters, sites."""

from __future__ import annotations

import argparse


def add_arguments(options: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    options.add_argument("kind", choices=["model"], help="what kind of thing")
    options.add_argument("name", help="a name of `nfm list models`, timm:NAME, torchvision:NAME, ...")
    options.add_argument(
        "--image-size", type=int, default=None, help="pixels a side (default: the network's usual)"
    )
    options.add_argument(
        "--channels", type=int, default=3, help="channels of an image, or features of a vector"
    )
    options.add_argument("--classes", type=int, default=10, help="classes")
    options.add_argument(
        "--option", action="append", default=[], metavar="NAME=VALUE", help="an option of the network"
    )


def run(given: argparse.Namespace) -> None:
    """Build the network and describe it."""
    import torch

    from nfm.cli.options import parse_options
    from nfm.method.sites import default_sites
    from nfm.models import build, describe, format_description

    vectors = given.name == "mlp"
    size = given.image_size or (224 if given.name in ("resnet18", "resnet50") or ":" in given.name else 32)
    options = parse_options(given.option)
    image_size = None if vectors else size
    model = build(
        given.name, num_classes=given.classes, in_channels=given.channels, image_size=image_size, **options
    )
    example = torch.zeros(2, given.channels, *(() if vectors else (size, size)))
    print(format_description(describe(model, example)))
    print(f"default sites: {', '.join(default_sites(model))}")
