"""Structures of tensors as bytes."""

from __future__ import annotations

import torch
from torch import Tensor

from fallow.storage.packing import pack, unpack
from tests.each import each_of

ROWS = torch.arange(12, dtype=torch.float64).reshape(3, 4)


@each_of(
    "tensor",
    [
        ROWS.T,
        ROWS[:1, :1],
        ROWS[1:2, 3],
        ROWS[1, 3],
        ROWS[:0],
        ROWS[:, 1:2],
        ROWS[1:2].bfloat16(),
        ROWS[:, :1] > 3,
    ],
)
def test_parts_of_a_tensor_are_packed_whatever_their_strides(tensor: Tensor) -> None:
    again = unpack(pack({"w": tensor}))["w"]
    assert again.dtype == tensor.dtype
    assert torch.equal(again, tensor)
