"""Test encoders that load networks against the original packages, where installed.

Networks are small and have random weights. The tests check how files are found, verified
and loaded, and that the features equal those of the package itself.
"""

from __future__ import annotations

import json
import shutil
import socket
from pathlib import Path
from typing import Any

import pytest
import torch
from network_files import (
    TEXTS,
    digest,
    need,
    save_bert,
    save_clip,
    save_context,
    save_onnx,
    save_resnet,
    save_tabpfn,
)

import fallow as fl
from fallow.encoders.base import encode_rows, encoder_digest
from fallow_encoders import ONNX, OpenCLIP, SentenceTransformers, TabPFN, Timm
from fallow_encoders.weights import digest_of_folder
from tests.encoders.asks import draw_pictures

# Ignore warnings of these packages; warnings of Fallow's own code are errors.
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(autouse=True)
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail the test on any attempt to open a connection."""

    def refuse(*args: object, **more: object) -> None:
        raise AssertionError("an encoder asked for a connection")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "create_connection", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)


def put_into_cache(
    folder: Path, repository: str, files: dict[str, Path], patch: pytest.MonkeyPatch
) -> None:
    """Return a hub cache with these files of a repository, laid out as by the hub."""
    hub = pytest.importorskip(
        "huggingface_hub", reason="the hub's package is not installed"
    )
    commit = "0" * 40
    home = folder / f"models--{repository.replace('/', '--')}"
    (home / "refs").mkdir(parents=True)
    (home / "refs" / "main").write_text(commit)
    for name, file in files.items():
        target = home / "snapshots" / commit / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, target)
    patch.setattr(hub.constants, "HF_HUB_CACHE", str(folder))


# -- timm ----------------------------------------------------------------------------------


def test_a_network_of_timm_is_filled_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "net.safetensors"
    whole = save_resnet(file)
    encoder = Timm("resnet10t", weights=str(file), sha256=digest(file), size=64)
    x = draw_pictures(5, 3, 64, 64)
    with torch.no_grad():
        wanted = whole.forward_head(whole.forward_features(x), pre_logits=True)  # type: ignore[operator]
    assert torch.allclose(encode_rows(encoder, x, {}), wanted, atol=1e-5)
    assert encode_rows(encoder, draw_pictures(2, 1, 20, 20), {}).shape == wanted[:2].shape


def test_a_network_of_timm_comes_from_the_cache_and_from_nowhere_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    timm = need("timm", "timm")
    put_into_cache(tmp_path / "empty", "nobody/nothing", {}, monkeypatch)
    with pytest.raises(
        ValueError, match=r"does not have its safetensors .* downloads nothing"
    ):
        Timm("resnet10t", size=64).width((3, 64, 64))

    file = tmp_path / "net.safetensors"
    save_resnet(file)
    repository = timm.get_pretrained_cfg("resnet10t").hf_hub_id
    put_into_cache(tmp_path / "hub", repository, {"model.safetensors": file}, monkeypatch)
    x = draw_pictures(2, 3, 64, 64)
    cached = Timm("resnet10t", size=64)
    named = Timm("resnet10t", size=64, weights=str(file))
    assert torch.equal(encode_rows(cached, x, {}), encode_rows(named, x, {}))
    assert cached.weights_digest() == named.weights_digest()
    with pytest.raises(ValueError, match="these are other weights"):
        Timm("resnet10t", size=64, sha256="0" * 64).width((3, 64, 64))


def test_a_run_encodes_by_a_network_of_timm(tmp_path: Path) -> None:
    file = tmp_path / "net.safetensors"
    save_resnet(file)
    run = fl.run(
        "digits",
        encoder=Timm("resnet10t", weights=str(file), size=32),
        training="closed-form",
        cycles=0,
        progress=False,
    )
    assert run.records["accuracy"].iloc[-1] > 0.5  # random weights distinguish images too


# -- ONNX ----------------------------------------------------------------------------------


def test_a_file_of_onnx_runs(tmp_path: Path) -> None:
    file = tmp_path / "net.onnx"
    w = save_onnx(file, (3, 2, 2))

    encoder = ONNX(str(file), sha256=digest(file))
    x = draw_pictures(70, 3, 2, 2)
    wanted = x.flatten(1) @ torch.from_numpy(w)
    assert torch.allclose(encode_rows(encoder, x, {}), wanted, atol=1e-5)
    with pytest.raises(ValueError, match="cannot encode examples of shape 7"):
        encoder.width((7,))
    (tmp_path / "torn.onnx").write_bytes(file.read_bytes()[:40])
    with pytest.raises(ValueError, match="is not a valid ONNX file"):
        ONNX(str(tmp_path / "torn.onnx")).width((3, 2, 2))


@pytest.mark.parametrize("location", ["w.data", "../w.data", "absolute"])
def test_weights_outside_a_file_of_onnx_are_not_read(
    location: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The digest of the file does not cover them."""
    folder = tmp_path / "network"
    folder.mkdir()
    file = folder / "net.onnx"
    w = save_onnx(file, (3, 2, 2))
    (folder / "w.data").write_bytes(w.tobytes())
    (tmp_path / "w.data").write_bytes(w.tobytes())
    if location == "absolute":
        location = str(tmp_path / "w.data")
    onnx = pytest.importorskip("onnx")
    model = onnx.load(file)
    (tensor,) = model.graph.initializer
    onnx.external_data_helper.set_external_data(tensor, location)
    tensor.ClearField("raw_data")
    file.write_bytes(model.SerializeToString())
    monkeypatch.chdir(folder)  # so that the path is valid from there, too
    with pytest.raises(ValueError, match="is not a valid ONNX file"):
        ONNX(str(file)).width((3, 2, 2))


# -- open_clip -----------------------------------------------------------------------------


@pytest.fixture
def clip(tmp_path: Path) -> tuple[Any, torch.nn.Module, Path]:
    """Yield open_clip, a small registered model, and the model's file."""
    file = tmp_path / "clip.safetensors"
    whole = save_clip(file)
    return need("open_clip", "open-clip"), whole, file


def test_an_image_tower_of_clip_is_filled_from_a_file_of_the_whole_model(
    clip: tuple[Any, torch.nn.Module, Path],
) -> None:
    _, whole, file = clip
    encoder = OpenCLIP("tiny-for-tests", weights=str(file), sha256=digest(file), size=32)
    x = draw_pictures(5, 3, 32, 32)
    with torch.no_grad():
        wanted = whole.encode_image(x)  # type: ignore[operator]
    assert wanted.shape == (5, 12)
    assert torch.allclose(encode_rows(encoder, x, {}), wanted, atol=1e-5)
    with pytest.raises(ValueError, match=r"cannot be created: .*check its name"):
        OpenCLIP("tiny-of-nobody", weights=str(file)).width((3, 32, 32))


def test_an_image_tower_of_clip_comes_from_the_cache_and_from_nowhere_else(
    clip: tuple[Any, torch.nn.Module, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    package, _, file = clip
    known = {"tiny-for-tests": {"some": {"hf_hub": "somebody/tiny/"}}}
    monkeypatch.setattr(package.pretrained, "_PRETRAINED", known)
    put_into_cache(tmp_path / "empty", "nobody/nothing", {}, monkeypatch)
    with pytest.raises(
        ValueError, match=r"tag=some: the cache of this machine does not have"
    ):
        OpenCLIP("tiny-for-tests", tag="some", size=32).width((3, 32, 32))

    files = {"open_clip_model.safetensors": file}
    put_into_cache(tmp_path / "hub", "somebody/tiny", files, monkeypatch)
    cached = OpenCLIP("tiny-for-tests", tag="some", size=32)
    named = OpenCLIP("tiny-for-tests", weights=str(file), size=32)
    assert cached.width((3, 32, 32)) == 12
    assert cached.weights_digest() == named.weights_digest()


# -- sentence-transformers -----------------------------------------------------------------


@pytest.fixture
def bert(tmp_path: Path) -> tuple[Any, Path]:
    """Return a text network with random weights and its folder."""
    return save_bert(tmp_path), tmp_path / "network"


def test_texts_are_encoded_as_the_package_does_it(bert: tuple[Any, Path]) -> None:
    whole, folder = bert
    encoder = SentenceTransformers(weights=str(folder), sha256=digest_of_folder(folder))
    x = fl.texts_to_rows(TEXTS)
    z = encode_rows(encoder, x, {})
    assert z.shape == (4, 16)
    wanted = torch.as_tensor(whole.encode(TEXTS))
    assert torch.allclose(z, wanted, atol=1e-5)
    assert float((z[0] - z[1]).abs().max()) > 1e-3, "all texts are alike"
    before = encoder_digest(SentenceTransformers(weights=str(folder)))
    (folder / "modules.json").write_text((folder / "modules.json").read_text() + " ")
    assert encoder_digest(SentenceTransformers(weights=str(folder))) != before
    with pytest.raises(ValueError, match="these are other weights"):
        encoder.weights_digest()


def test_a_network_of_texts_comes_from_the_cache_and_from_nowhere_else(
    bert: tuple[Any, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, folder = bert
    put_into_cache(tmp_path / "empty", "nobody/nothing", {}, monkeypatch)
    with pytest.raises(ValueError, match=r"does not have sentence-transformers/tiny, and"):
        SentenceTransformers("tiny").width((9,))

    files = {}
    for file in folder.rglob("*"):
        if file.is_file():
            files[file.relative_to(folder).as_posix()] = file
    put_into_cache(tmp_path / "hub", "sentence-transformers/tiny", files, monkeypatch)
    x = fl.texts_to_rows(TEXTS)
    cached = SentenceTransformers("tiny")
    named = SentenceTransformers(weights=str(folder))
    assert torch.equal(encode_rows(cached, x, {}), encode_rows(named, x, {}))
    assert cached.weights_digest() == named.weights_digest()


def test_a_network_of_texts_that_brings_code_is_refused(bert: tuple[Any, Path]) -> None:
    _, folder = bert
    marker = folder.parent / "marker"
    (folder / "planted.py").write_text(f"open({str(marker)!r}, 'w')\nclass Network: ...\n")
    modules = json.loads((folder / "modules.json").read_text())
    modules[0]["type"] = "planted.Network"
    (folder / "modules.json").write_text(json.dumps(modules))
    with pytest.raises(ValueError, match=r"names the class 'planted\.Network'"):
        SentenceTransformers(weights=str(folder)).width((9,))
    assert not marker.exists()


# -- TabPFN --------------------------------------------------------------------------------


@pytest.fixture
def tabular(tmp_path: Path) -> tuple[Path, Path]:
    """Return a small TabPFN with random weights and a context of public examples."""
    file = tmp_path / "tabpfn.safetensors"
    save_tabpfn(file)
    context = tmp_path / "public.safetensors"
    save_context(context)
    return file, context


def test_rows_of_tables_are_encoded_beside_public_rows(tabular: tuple[Path, Path]) -> None:
    file, context = tabular
    encoder = TabPFN(
        str(file),
        sha256=digest(file),
        context=str(context),
        context_sha256=digest(context),
    )
    x = draw_pictures(30, 4, seed=3)
    z = encode_rows(encoder, x, {})
    assert z.shape == (30, encoder.width((4,)))
    assert float((z[0] - z[1]).abs().max()) > 1e-4, "all rows are alike"
    again = torch.cat([encode_rows(encoder, x[:11], {}), encode_rows(encoder, x[11:], {})])
    assert torch.allclose(again, z, atol=1e-4)
    with pytest.raises(
        ValueError, match="cannot encode examples of 5 numbers with the context"
    ):
        encoder.width((5,))


def test_files_of_tabpfn_that_can_hold_code_are_not_read(
    tabular: tuple[Path, Path], tmp_path: Path
) -> None:
    file, context = tabular
    pickled = tmp_path / "tabpfn.ckpt"
    pickled.write_bytes(file.read_bytes())
    with pytest.raises(ValueError, match=r"does not end in \.safetensors"):
        TabPFN(str(pickled), context=str(context)).width((4,))
    with pytest.raises(ValueError, match="does not contain a context"):
        TabPFN(str(file), context=str(file)).width((4,))
