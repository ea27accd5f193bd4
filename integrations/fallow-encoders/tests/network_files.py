"""Small networks with random weights, saved in the file formats that encoders load."""

from __future__ import annotations

import hashlib
import json
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from tests.encoders.asks import draw_pictures
from tests.packages import forget, install

PACKAGE = Path(__file__).resolve().parents[1]
NAME = "fallow-encoders"


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Install the distribution as from a wheel."""
    declared = tomllib.loads((PACKAGE / "pyproject.toml").read_text())["project"]
    entries = []
    for group, names in declared["entry-points"].items():
        entries += [f"[{group}]", *(f"{name} = {target}" for name, target in names.items())]
    source = PACKAGE / "src"
    files = {
        file.relative_to(source).as_posix(): file.read_text()
        for file in source.glob("*/*.py")
    }
    folder = tmp_path / "installed"
    install(folder, NAME, files, monkeypatch, "1.0.0", entries="\n".join(entries))
    yield
    forget("fallow_encoders")


def digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def need(module: str, extra: str) -> Any:
    """Return the package, or skip the test with the command that installs it."""
    reason = f"{module} is not installed: pip install 'fallow-encoders[{extra}]'"
    return pytest.importorskip(module, reason=reason)


# -- timm ----------------------------------------------------------------------------------


def save_resnet(file: Path, seed: int = 0) -> torch.nn.Module:
    """Save a small timm network with a classifier in the published format of timm."""
    timm = need("timm", "timm")
    torch.manual_seed(seed)
    whole: torch.nn.Module = timm.create_model("resnet10t", pretrained=False, num_classes=7)
    save_file(whole.state_dict(), file)
    return whole.eval()


# -- ONNX ----------------------------------------------------------------------------------


def save_onnx(file: Path, shape: tuple[int, int, int], seed: int = 0) -> np.ndarray:
    """Save a network that multiplies flattened images by a matrix with five columns."""
    need("onnxruntime", "onnx")
    onnx = pytest.importorskip(
        "onnx", reason="onnx, which writes the file, is not installed"
    )
    rng = np.random.default_rng(seed)
    w = rng.normal(size=(int(np.prod(shape)), 5)).astype(np.float32)
    helper = onnx.helper
    kind = onnx.TensorProto.FLOAT
    graph = helper.make_graph(
        [
            helper.make_node("Flatten", ["rows"], ["flat"]),
            helper.make_node("MatMul", ["flat", "w"], ["features"]),
        ],
        "net",
        [helper.make_tensor_value_info("rows", kind, ["n", *shape])],
        [helper.make_tensor_value_info("features", kind, ["n", 5])],
        [onnx.numpy_helper.from_array(w, "w")],
    )
    opset = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=9), file)
    return w


# -- open_clip -----------------------------------------------------------------------------

CLIP = {
    "embed_dim": 12,
    "vision_cfg": {"image_size": 32, "layers": 2, "width": 64, "patch_size": 8},
    "text_cfg": {
        "context_length": 8,
        "vocab_size": 64,
        "width": 16,
        "heads": 2,
        "layers": 1,
    },
}


def save_clip(file: Path, seed: int = 0) -> torch.nn.Module:
    """Save a small open_clip model and register its configuration as "tiny-for-tests"."""
    package = need("open_clip", "open-clip")
    settings = file.parent / "configs"
    settings.mkdir(exist_ok=True)
    (settings / "tiny-for-tests.json").write_text(json.dumps(CLIP))
    package.add_model_config(settings)
    torch.manual_seed(seed)
    whole: torch.nn.Module = package.create_model("tiny-for-tests", pretrained=None).eval()
    save_file(
        {name: value.contiguous() for name, value in whole.state_dict().items()}, file
    )
    return whole


# -- sentence-transformers -----------------------------------------------------------------

TEXTS = ["two beds on ward three", "no beds", "", "four beds on ward two"]


def save_bert(folder: Path, seed: int = 0) -> Any:
    """Save a text network with random weights in the subfolder ``network``."""
    package = need("sentence_transformers", "sentence-transformers")
    transformers = pytest.importorskip("transformers")
    words = sorted({word for text in TEXTS for word in text.split()})
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    (folder / "vocab.txt").write_text("\n".join([*special, *words]) + "\n")
    tokenizer = transformers.BertTokenizerFast(vocab_file=str(folder / "vocab.txt"))
    settings = transformers.BertConfig(
        vocab_size=len(special) + len(words),
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        max_position_embeddings=32,
    )
    torch.manual_seed(seed)
    inner = folder / "bert"
    transformers.BertModel(settings).save_pretrained(inner)
    tokenizer.save_pretrained(inner)
    from sentence_transformers.models import (  # type: ignore[import-not-found, unused-ignore]
        Pooling,
        Transformer,
    )

    words_in = Transformer(str(inner), max_seq_length=16)
    pooling = Pooling(16)
    whole = package.SentenceTransformer(modules=[words_in, pooling], device="cpu")
    whole.save_pretrained(str(folder / "network"))
    return whole


# -- TabPFN --------------------------------------------------------------------------------


def save_tabpfn(file: Path, seed: int = 0) -> None:
    """Save a small TabPFN with random weights."""
    need("tabpfn", "tabpfn")
    from tabpfn.architectures import tabpfn_v2  # type: ignore[import-not-found, unused-ignore]
    from tabpfn.checkpoint import save_as_safetensors  # type: ignore[import-not-found, unused-ignore]

    settings = tabpfn_v2.TabPFNV2Config(
        emsize=24, nlayers=2, nhead=2, max_num_classes=10, num_buckets=0
    )
    torch.manual_seed(seed)
    network = tabpfn_v2.TabPFNV2(config=settings, n_out=10)
    for weights in network.parameters():
        torch.nn.init.normal_(weights, std=0.2)
    details = {"architecture_name": "tabpfn_v2", "config": vars(settings)}
    save_as_safetensors({"state_dict": network.state_dict(), **details}, file)


def save_context(file: Path, seed: int = 0) -> None:
    """Save public examples with four columns as the context of TabPFN."""
    x = draw_pictures(40, 4, seed=seed)
    save_file({"x": x, "y": (x[:, 0] > 0).long()}, file)
