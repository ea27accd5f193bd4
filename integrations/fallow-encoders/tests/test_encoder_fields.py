"""Test that each field of an encoder has an effect or is rejected."""

from __future__ import annotations

import dataclasses
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from network_files import (
    TEXTS,
    save_bert,
    save_clip,
    save_context,
    save_onnx,
    save_resnet,
    save_tabpfn,
)

import fallow as fl
import fallow_encoders
from tests.contracts.test_fields import IMAGES, IRIS, digest

# Ignore warnings of these packages; warnings of Fallow's own code are errors.
pytestmark = pytest.mark.filterwarnings("ignore")


def run_encoder(name: str, fields: dict[str, Any]) -> str:
    federation = IMAGES
    if name == "SentenceTransformers":
        data = fl.from_arrays(fl.texts_to_rows(TEXTS * 6), [0, 1, 1, 0] * 6)
        federation = fl.Federation(data, fl.IID(), sites=2)
    if name == "TabPFN":
        federation = IRIS
    encoder = getattr(fallow_encoders, name)(**fields)
    run = fl.run(federation, "random", encoder=encoder, initial=8, cycles=0, progress=False)
    return digest(run)


def write_timm(folder: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    files = [str(folder / name) for name in ("a.safetensors", "b.safetensors")]
    for seed, file in enumerate(files):
        save_resnet(Path(file), seed)
    usual = {"network": "resnet10t", "weights": files[0], "size": 32}
    return usual, {"network": "resnet14t", "weights": files[1], "size": 64}


def write_clip(folder: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    files = [str(folder / name) for name in ("a.safetensors", "b.safetensors")]
    for seed, file in enumerate(files):
        save_clip(Path(file), seed)
    usual = {"network": "tiny-for-tests", "weights": files[0], "size": 32}
    other = {"network": "of-nobody", "weights": files[1], "size": 64, "tag": "of-nobody"}
    return usual, other


def write_onnx(folder: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    files = [str(folder / name) for name in ("a.onnx", "b.onnx")]
    for seed, file in enumerate(files):
        save_onnx(Path(file), (1, 8, 8), seed)
    return {"weights": files[0]}, {"weights": files[1]}


def write_texts(folder: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    for seed, part in enumerate("ab"):
        (folder / part).mkdir()
        save_bert(folder / part, seed)
    usual = {"weights": str(folder / "a" / "network")}
    return usual, {"weights": str(folder / "b" / "network"), "network": "tiny"}


def write_tables(folder: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    usual: dict[str, Any] = {}
    other: dict[str, Any] = {}
    for seed, fields in enumerate((usual, other)):
        fields["weights"] = str(folder / f"{seed}.safetensors")
        fields["context"] = str(folder / f"{seed}-public.safetensors")
        save_tabpfn(Path(fields["weights"]), seed)
        save_context(Path(fields["context"]), seed)
    return usual, {**other, "context_sha256": "0" * 64}


NETWORKS = {
    "ONNX": write_onnx,
    "OpenCLIP": write_clip,
    "SentenceTransformers": write_texts,
    "TabPFN": write_tables,
    "Timm": write_timm,
}
"""Functions that save small networks, and alternative values of the encoder's fields."""

BATCH = "batch"  # the batch size affects only time and memory
FIELDS = [
    (name, field.name)
    for name in NETWORKS
    for field in dataclasses.fields(getattr(fallow_encoders, name))
    if field.name != BATCH
]


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Return a function that saves a network once and returns its encoder's fields."""

    @cache
    def write(name: str) -> tuple[dict[str, Any], dict[str, Any], str]:
        usual, other = NETWORKS[name](tmp_path_factory.mktemp(name))
        return usual, {"sha256": "0" * 64, **other}, run_encoder(name, usual)

    return write


@pytest.mark.parametrize(("name", "field"), FIELDS)
def test_a_field_of_an_encoder_changes_the_run_or_is_refused(
    name: str, field: str, written: Any
) -> None:
    usual, others, before = written(name)
    default = getattr(getattr(fallow_encoders, name), field)
    value = others.get(field, not default)
    try:
        after = run_encoder(name, {**usual, field: value})
    except ValueError as error:
        assert field in str(error).replace("SHA-256", "sha256")
        return
    assert after != before, f"{name}({field}={value!r}) computes what {name}() does"


def test_a_name_and_a_folder_of_a_network_contradict_each_other() -> None:
    with pytest.raises(
        ValueError, match=r"network is 'a' and weights is 'b'.*set one of them"
    ):
        fallow_encoders.SentenceTransformers(network="a", weights="b")
