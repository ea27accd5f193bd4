"""Test encoders from weight files with stubs of the network packages.

The packages need not be installed. Stub modules provide the functions that encoders call,
so that the tests check how weights are found, verified and loaded.
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from network_files import installed
from safetensors.torch import save_file
from torch import Tensor, nn

from fallow import encoders
from fallow.core.build import build
from fallow.core.methods import Encoder
from fallow.core.names import OWN
from fallow.encoders.base import encode_rows, encoder_digest
from fallow.settings.spec import Spec
from fallow_encoders import ONNX, OpenCLIP, SentenceTransformers, TabPFN, Timm
from fallow_encoders.onnx import open_session
from fallow_encoders.open_clip import load_tower
from fallow_encoders.sentence_transformers import find_folder
from fallow_encoders.tabpfn import read_context
from fallow_encoders.timm import load_timm
from fallow_encoders.weights import digest_of_folder, fill_network
from tests.encoders.asks import draw_pictures

__all__ = ["installed"]


class Net(nn.Module):
    """A small image network, in training mode unless set otherwise."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        self.body = nn.Conv2d(3, 5, 3, stride=2)
        self.drop = nn.Dropout(0.5)
        draw = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for weights in self.parameters():
                weights.copy_(torch.randn(weights.shape, generator=draw))

    def forward(self, x: Tensor) -> Tensor:
        dropped: Tensor = self.drop(self.body(x))
        return dropped.mean((2, 3))


# -- timm ----------------------------------------------------------------------------------


@pytest.fixture
def timm(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """Install a stub package with one network that is not in the hub's cache."""
    package = ModuleType("timm")

    def create_model(name: str, pretrained: bool, num_classes: int) -> nn.Module:
        if name != "small":
            raise RuntimeError(f"Unknown model ({name})")
        assert not pretrained, "it would be fetched"
        assert num_classes == 0
        net = Net(seed=7)
        net.pretrained_cfg = {"mean": (0.5, 0.5, 0.5), "std": (0.5, 0.5, 0.5)}  # type: ignore[assignment]
        return net

    def get_pretrained_cfg(name: str) -> object:
        return type("About", (), {"hf_hub_id": f"timm/{name}.nobody"})()

    package.create_model = create_model  # type: ignore[attr-defined]
    package.get_pretrained_cfg = get_pretrained_cfg  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "timm", package)
    load_timm.cache_clear()
    yield package
    load_timm.cache_clear()


def save_net(folder: Path, seed: int = 0) -> tuple[str, str]:
    """Save weights with an unused classifier; return the file and its SHA-256."""
    file = folder / f"net-{seed}.safetensors"
    save_file({**Net(seed).state_dict(), "head.weight": torch.zeros(3, 5)}, file)
    return str(file), hashlib.sha256(file.read_bytes()).hexdigest()


def test_a_network_of_timm_has_the_weights_of_the_file(
    timm: ModuleType, tmp_path: Path
) -> None:
    file, sha256 = save_net(tmp_path)
    encoder = Timm("small", weights=file, sha256=sha256, size=12)
    x = draw_pictures(7, 3, 12, 12)
    assert torch.allclose(encode_rows(encoder, x, {}), Net(0).eval()(x).detach(), atol=1e-6)
    gray = draw_pictures(7, 1, 9, 9)
    assert encode_rows(encoder, gray, {}).shape == (7, 5)
    other = Timm("small", weights=save_net(tmp_path, 1)[0], size=12)
    assert encoder_digest(other) != encoder_digest(encoder)


def test_files_that_can_hold_code_are_not_read(timm: ModuleType, tmp_path: Path) -> None:
    torch.save(Net(0).state_dict(), tmp_path / "net.pt")
    with pytest.raises(ValueError, match=r"not a complete safetensors file .*: convert it"):
        Timm("small", weights=str(tmp_path / "net.pt")).width((3, 9, 9))


def test_what_is_wrong_with_weights_is_one_sentence(
    timm: ModuleType, tmp_path: Path
) -> None:
    file, _ = save_net(tmp_path)
    save_file({"body.bias": torch.zeros(5)}, tmp_path / "half.safetensors")
    save_file(
        {"body.bias": torch.zeros(4), "body.weight": torch.zeros(5, 3, 3, 3)},
        tmp_path / "odd.safetensors",
    )
    (tmp_path / "torn.safetensors").write_bytes(Path(file).read_bytes()[:40])
    shape = (3, 9, 9)
    for wrong, words in (
        (Timm("small", weights=str(tmp_path / "none")), "there is no weights file"),
        (
            Timm("small", weights=file, sha256="0" * 64),
            "0: these are other weights",
        ),
        (Timm("small", weights=str(tmp_path / "half.safetensors")), "lacks 1 of 2 weights"),
        (Timm("small", weights=str(tmp_path / "odd.safetensors")), "does not match"),
        (
            Timm("small", weights=str(tmp_path / "torn.safetensors")),
            "not a complete safetensors file",
        ),
        (
            Timm("small"),
            "does not have its safetensors file, and a study downloads nothing",
        ),
    ):
        with pytest.raises(ValueError, match=words):
            wrong.width(shape)
    with pytest.raises(ValueError, match="Unknown model"):
        Timm("large").width(shape)
    with pytest.raises(
        ValueError, match="one or three colors, and an example has the shape 4"
    ):
        Timm("small", weights=file).width((4,))
    with pytest.raises(ValueError, match="network is missing"):
        Timm()


@pytest.mark.usefixtures("installed")
def test_what_a_loader_loads_may_stand_right_behind_its_name() -> None:
    assert Spec.parse("timm:vit_small") == Spec("timm", {"network": "vit_small"})
    parsed = Spec.parse("onnx:a/net.onnx:batch=8")
    assert parsed == Spec("onnx", {"weights": "a/net.onnx", "batch": 8})
    assert Spec.parse("timm:network=a:size=64").fields == {"network": "a", "size": 64}
    clip = {"network": "ViT-B-32", "tag": "some"}
    assert Spec.parse("open_clip:ViT-B-32:tag=some") == Spec("open_clip", clip)
    texts = Spec.parse("sentence-transformers:all-MiniLM-L6-v2")
    assert texts.fields == {"network": "all-MiniLM-L6-v2"}
    assert Spec.parse("tabpfn:a/b.safetensors").fields == {"weights": "a/b.safetensors"}


def test_a_package_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    load_timm.cache_clear()
    monkeypatch.setitem(sys.modules, "timm", None)
    with pytest.raises(
        ValueError,
        match=r"needs the package fallow-encoders\[timm\], .* pip install 'fallow",
    ):
        Timm("small").width((3, 9, 9))


@pytest.mark.parametrize(
    ("encoder", "package"),
    [
        (OpenCLIP("ViT-B-32", weights="net.safetensors"), "open_clip"),
        (SentenceTransformers("absent"), "sentence_transformers"),
        (TabPFN("net.safetensors", context="rows.safetensors"), "tabpfn"),
    ],
)
def test_other_packages_that_are_missing_are_named(
    encoder: Encoder, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    shape = (3, 9, 9) if package == "open_clip" else (4,)
    with pytest.raises(ValueError, match=r"needs the package .*; install it, for example"):
        encoder.width(shape)


def test_loaders_say_what_they_lack() -> None:
    for loader, words in (
        (OpenCLIP, "Open CLIP: network is missing"),
        (SentenceTransformers, "network is missing; set it, .* or a folder"),
        (TabPFN, "TabPFN: weights is missing"),
    ):
        with pytest.raises(ValueError, match=words):
            loader()
    with pytest.raises(
        ValueError, match="one number per character, and an example has the shape 3 x 9 x 9"
    ):
        SentenceTransformers("tiny").width((3, 9, 9))


@pytest.mark.usefixtures("installed")
def test_names_of_loaders_resolve_however_a_package_writes_them() -> None:
    for name in ("open_clip", "open-clip", "OpenCLIP"):
        values = build(encoders, name, OWN, network="ViT-B-32")
        assert repr(values) == repr(OpenCLIP("ViT-B-32"))
    assert str(Spec.of(OpenCLIP("ViT-B-32"))) == "open-clip:network=ViT-B-32"
    assert str(Spec.of(SentenceTransformers("a"))) == "sentence-transformers:network=a"
    assert str(Spec.of(TabPFN("a", context="b"))) == "tabpfn:weights=a:context=b"


# -- open_clip -----------------------------------------------------------------------------


@pytest.fixture
def open_clip(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """Install a stub package with one network, whose tag is not in the hub's cache."""
    package = ModuleType("open_clip")

    def create_model(name: str, **options: Any) -> object:
        tower = Net(seed=7)
        tower.image_mean = (0.5, 0.5, 0.5)  # type: ignore[assignment]
        tower.image_std = (0.5, 0.5, 0.5)  # type: ignore[assignment]
        return type("Clip", (), {"visual": tower})()

    def get_pretrained_cfg(name: str, tag: str) -> dict[str, object]:
        return {"hf_hub": "nobody/nothing"} if tag == "some" else {}

    package.create_model = create_model  # type: ignore[attr-defined]
    package.get_pretrained_cfg = get_pretrained_cfg  # type: ignore[attr-defined]
    package.list_pretrained_tags_by_model = lambda name: ["some"]  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "open_clip", package)
    load_tower.cache_clear()
    yield package
    load_tower.cache_clear()


@pytest.mark.usefixtures("open_clip")
@pytest.mark.parametrize(
    ("tag", "words"),
    [
        ("other", "no weights with the tag 'other'; its tags of this network are some"),
        ("some", "tag=some: the cache of this machine does not have"),
        (None, "has neither tag nor weights; set tag=NAME or weights=FILE"),
    ],
)
def test_what_is_wrong_with_a_tag_is_said(tag: str | None, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        OpenCLIP("small", tag=tag, size=12).width((3, 12, 12))


def test_weights_of_the_text_tower_do_not_replace_those_of_the_image_tower(
    tmp_path: Path,
) -> None:
    tower = nn.ModuleDict({"transformer": nn.Linear(2, 2), "conv": nn.Linear(2, 2)})
    of_image = {
        f"visual.{name}": torch.ones_like(w) for name, w in tower.state_dict().items()
    }
    of_text = {  # smaller numbers are last in the file
        f"transformer.{name}": torch.zeros_like(w).half()
        for name, w in tower["transformer"].state_dict().items()
    }
    whole = tmp_path / "whole.safetensors"
    save_file(of_image | of_text, whole)
    filled = fill_network(tower, whole, "the encoder", "visual.")
    assert all(bool((w == 1).all()) for w in filled.state_dict().values())
    text = tmp_path / "text.safetensors"
    save_file(of_text, text)
    with pytest.raises(ValueError, match="lacks 2 of 4 weights"):
        fill_network(tower, text, "the encoder", "visual.")


# -- folders as weights --------------------------------------------------------------------


def test_a_folder_that_can_hold_code_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "network"
    folder.mkdir()
    (folder / "modules.json").write_text("[]")
    (folder / "pytorch_model.bin").write_bytes(b"code")
    with pytest.raises(ValueError, match=r"pytorch_model\.bin can contain code"):
        find_folder("", str(folder), None)
    (folder / "model.safetensors").write_bytes(b"weights")
    assert find_folder("", str(folder), None) == folder
    digest = digest_of_folder(folder)
    assert find_folder("", str(folder), digest) == folder
    (folder / ".hidden").write_text("not of the network")
    assert digest_of_folder(folder) == digest
    (folder / "model.safetensors").rename(folder / "other.safetensors")
    with pytest.raises(ValueError, match="these are other weights"):
        find_folder("", str(folder), digest)
    with pytest.raises(ValueError, match="there is no folder"):
        find_folder("", str(tmp_path / "none"), None)


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        (
            "modules.json",
            '[{"path": "", "type": "planted.Network"}]',
            r"names the class 'planted\.Network', which can run code",
        ),
        (
            "0_Router/router_config.json",
            '{"types": {"query": "planted.Network"}}',
            r"names the class 'planted\.Network', which can run code",
        ),
        (
            "modules.json",
            '[{"path": "../other", "type": "sentence_transformers.models.Dense"}]',
            r"names the folder '\.\./other', which its digest does not cover",
        ),
        (
            "modules.json",
            '[{"path": ".hidden", "type": "sentence_transformers.models.Dense"}]',
            r"names the folder '\.hidden', which its digest does not cover",
        ),
        ("modules.json", "[", "does not list the modules of a network"),
        ("modules.json", "[{}]", "does not list the modules of a network"),
    ],
)
def test_a_folder_that_names_other_code_or_folders_is_refused(
    name: str, content: str, words: str, tmp_path: Path
) -> None:
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text(content)
    with pytest.raises(ValueError, match=words):
        find_folder("", str(tmp_path), None)


def test_public_rows_need_numbers_and_what_they_are(tmp_path: Path) -> None:
    file = tmp_path / "rows.safetensors"
    save_file({"x": torch.zeros(3, 2), "y": torch.zeros(4)}, file)
    with pytest.raises(ValueError, match="does not contain a context: it needs examples x"):
        read_context(file)
    save_file({"x": torch.zeros(3, 2), "y": torch.arange(3)}, file)
    x, y = read_context(file)
    assert (x.shape, y.tolist()) == ((3, 2), [0, 1, 2])


def test_tabpfn_is_loaded_without_telemetry(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    switch = "TABPFN_DISABLE_TELEMETRY"
    states: list[str] = []

    class Classifier:
        def __init__(self, **options: object) -> None:
            states.append(os.environ[switch])

        def fit(self, x: object, y: object) -> None:
            pass

        def get_embeddings(self, x: np.ndarray, data_source: str) -> np.ndarray:
            return np.zeros((1, len(x), 2))

    package = ModuleType("tabpfn")
    package.TabPFNClassifier = Classifier  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "tabpfn", package)
    monkeypatch.setenv(switch, "0")
    network = tmp_path / "network.safetensors"
    context = tmp_path / "context.safetensors"
    save_file({"w": torch.zeros(1)}, network)
    save_file({"x": torch.zeros(3, 4), "y": torch.arange(3)}, context)
    assert TabPFN(str(network), context=str(context)).width((4,)) == 2
    assert states == ["1"]


# -- ONNX ----------------------------------------------------------------------------------


class Session:
    """Stub of an inference session that multiplies by a matrix."""

    def __init__(self, content: bytes, options: object, providers: list[str]) -> None:
        self.w = np.frombuffer(content, np.float32).reshape(12, 2)

    def get_inputs(self) -> list[Any]:
        return [type("Input", (), {"name": "rows"})()]

    def run(self, outputs: None, inputs: dict[str, Any]) -> list[Any]:
        x = inputs["rows"]
        return [x.reshape(len(x), -1) @ self.w]


class Options:
    """Stub of the options of an inference session."""

    def add_session_config_entry(self, name: str, value: str) -> None:
        pass


@pytest.fixture
def onnx(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    package = ModuleType("onnxruntime")
    package.InferenceSession = Session  # type: ignore[attr-defined]
    package.SessionOptions = Options  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "onnxruntime", package)
    open_session.cache_clear()
    yield
    open_session.cache_clear()


def test_a_file_of_onnx_gives_its_first_output(
    onnx: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    w = np.arange(24, dtype=np.float32).reshape(12, 2)
    (tmp_path / "net.onnx").write_bytes(w.tobytes())
    encoder = ONNX(str(tmp_path / "net.onnx"))
    x = draw_pictures(70, 3, 2, 2)
    z = encode_rows(encoder, x, {})
    assert torch.allclose(z, x.flatten(1) @ torch.from_numpy(w), atol=1e-4)
    with pytest.raises(ValueError, match="cannot encode examples of shape 7"):
        encoder.width((7,))
    monkeypatch.setattr(Session, "run", lambda session, outputs, inputs: [np.zeros(1)])
    with pytest.raises(ValueError, match=r"cannot encode examples of shape 12: .*Dim"):
        encoder.width((12,))
    before = encoder_digest(encoder)
    (tmp_path / "net.onnx").write_bytes((w + 1).tobytes())
    assert encoder_digest(encoder) != before
    (tmp_path / "net.onnx").write_bytes(b"12345")
    open_session.cache_clear()
    with pytest.raises(ValueError, match="is not a valid ONNX file"):
        encoder.width((12,))
    with pytest.raises(ValueError, match="weights is missing"):
        ONNX()
