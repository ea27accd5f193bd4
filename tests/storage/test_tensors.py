"""The format of safetensors by hand: byte for byte what the package writes, and nothing worse."""

from __future__ import annotations

import json

import pytest
import torch
from safetensors import torch as package
from torch import Tensor

from fallow.storage.tensors import NAMES, load, save

META = {"tree": '{"ü": "\\u001f \\"x\\"\n"}'}


def many() -> dict[str, Tensor]:
    """Tensors of every kind: of several dimensions, of none, and empty."""
    found = {}
    for at, dtype in enumerate(NAMES):
        found[f"b{at}"] = torch.arange(6).reshape(2, 3).to(dtype)
        found[f"a{at}"] = torch.ones((), dtype=dtype)
        found[str(at)] = torch.zeros(0, 4, dtype=dtype)
    return found


def test_it_writes_what_the_package_writes() -> None:
    assert save(many(), META) == package.save(many(), META)


def test_each_reads_what_the_other_wrote() -> None:
    for found in (load(package.save(many(), META)), package.load(save(many(), META))):
        assert found.keys() == many().keys()
        for name, tensor in many().items():
            assert found[name].dtype == tensor.dtype
            assert found[name].shape == tensor.shape
            assert torch.equal(found[name], tensor)


def forged(**about: object) -> bytes:
    entry = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8], **about}
    text = json.dumps({"a": entry}).encode()
    return len(text).to_bytes(8, "little") + text + bytes(8)


def test_the_forged_ones_below_would_be_read_if_they_were_honest() -> None:
    assert torch.equal(load(forged())["a"], torch.zeros(2))


@pytest.mark.parametrize(
    "blob",
    [
        b"",
        b"\xff" * 8,
        (2**40).to_bytes(8, "little") + b"{}",
        forged()[:-1],
        forged() + b"x",
        forged(shape=[3]),
        forged(shape=[-2]),
        forged(shape=[True, 2]),
        forged(shape=[2.0]),
        forged(data_offsets=[0, 4]),
        forged(data_offsets=[4, 12]),
        forged(data_offsets=[-8, 0]),
        forged(shape=[2**40], data_offsets=[0, 2**42]),
        (4).to_bytes(8, "little") + b"[1] ",
    ],
)
def test_anything_else_is_refused(blob: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        load(blob)


@pytest.mark.parametrize("about", [{"dtype": "F31"}, {"dtype": ["F32"]}])
def test_a_kind_that_is_unknown_is_refused(about: dict[str, object]) -> None:
    with pytest.raises((LookupError, TypeError)):
        load(forged(**about))
