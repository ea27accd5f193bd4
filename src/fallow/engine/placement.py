"""Device of models, and precision of matrix products on it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import final

import torch

PRECISIONS = ("float32", "bf16", "tf32")

WORKSPACE = ("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
"""Setting without which cuBLAS may add in a different order each time; it is read when
cuBLAS starts.
"""

FILLS = "fill_uninitialized_memory"
"""Side effect of deterministic algorithms in PyTorch: an additional kernel for each tensor."""


class DeviceFailed(RuntimeError):
    """A device failed or has too little memory; the message explains how to continue."""


@final
@dataclass(frozen=True)
class Placement:
    """A device and the precision of products on it.

    ``"float32"``: full precision. ``"tf32"``: products of float32 with ten binary digits
    after the point (NVIDIA, from Ampere on). ``"bf16"``: products of forward passes in
    training in bfloat16, while weights, batch-norm statistics, losses, optimizer and all
    predictions keep their precision.
    """

    device: torch.device = torch.device("cpu")
    precision: str = "float32"

    @staticmethod
    def open(device: str, precision: str = "float32") -> Placement:
        """Return the device of this name on this machine.

        Raises ValueError for a device that this machine does not have, or that lacks the
        precision.
        """
        check_machine(device, precision)
        if device == "cuda":
            os.environ.setdefault(*WORKSPACE)
            return Placement(torch.device("cuda", torch.cuda.current_device()), precision)
        return Placement(torch.device(device), precision)

    @property
    def autocast(self) -> torch.dtype | None:
        """Dtype of products in training; None for the dtype of the model."""
        if self.precision == "bf16":
            return torch.bfloat16
        return None

    @contextmanager
    def computing(self) -> Iterator[None]:
        """Use deterministic kernels and the precision of this placement in this context.

        Earlier settings of PyTorch are restored.
        """
        with ExitStack() as undo:
            if self.device.type == "cuda":
                undo.enter_context(_deterministic())
                undo.enter_context(
                    _products("tf32" if self.precision == "tf32" else "ieee")
                )
            yield

    def describe(self) -> Mapping[str, str]:
        """Describe the device and its libraries, on which a result depends, for records."""
        result = {"device": self.device.type, "precision": self.precision}
        if self.device.type == "cuda":
            result["gpu"] = torch.cuda.get_device_name(self.device)
            result["cuda"] = str(torch.version.cuda)
            cudnn = torch.backends.cudnn.version()  # type: ignore[no-untyped-call]  # torch's
            result["cudnn"] = str(cudnn)
        return result


def check_machine(device: str, precision: str) -> None:
    """Raise ValueError if this machine has no such device, or the device lacks the
    precision.

    >>> check_machine("cpu", "bf16")
    """
    if device == "cuda":
        if not torch.cuda.is_available():
            raise ValueError(
                "device is 'cuda', and PyTorch finds no GPU on this machine; set "
                "device=cpu, or see 'nvidia-smi' and install a build of PyTorch with CUDA"
            )
        major, _ = torch.cuda.get_device_capability()
        if major < 8 and precision in ("bf16", "tf32"):
            raise ValueError(
                f"precision is {precision!r}, which {torch.cuda.get_device_name()} does "
                "not support (it requires Ampere); set precision=float32"
            )
    if device == "mps" and not torch.backends.mps.is_available():
        raise ValueError(
            "device is 'mps', and this machine has no Apple GPU that PyTorch supports; "
            "set device=cpu"
        )


@contextmanager
def _deterministic() -> Iterator[None]:
    """Use deterministic operations. An operation that is not deterministic causes a
    warning.
    """
    was_on = torch.are_deterministic_algorithms_enabled()
    was_lenient = torch.is_deterministic_algorithms_warn_only_enabled()
    cudnn = torch.backends.cudnn
    before = (cudnn.deterministic, cudnn.benchmark)
    fill = torch.utils.deterministic
    was_filling = getattr(fill, FILLS)
    torch.use_deterministic_algorithms(True, warn_only=True)
    setattr(fill, FILLS, False)
    cudnn.deterministic = True
    cudnn.benchmark = False
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(was_on, warn_only=was_lenient)
        setattr(fill, FILLS, was_filling)
        cudnn.deterministic, cudnn.benchmark = before


@contextmanager
def _products(precision: str) -> Iterator[None]:
    """Set the precision of float32 products in CUDA: "ieee", or "tf32" with fewer digits.

    PyTorch 2.9 has new names for it, and warns about the old ones.
    """
    matmul = torch.backends.cuda.matmul
    cudnn = torch.backends.cudnn
    has_names = hasattr(torch.backends, "fp32_precision")
    if has_names:
        conv = getattr(cudnn, "conv")  # noqa: B009 - which torch's types do not know
        places = [(matmul, "fp32_precision"), (conv, "fp32_precision")]
        wanted: object = precision
    else:
        places = [(matmul, "allow_tf32"), (cudnn, "allow_tf32")]
        wanted = precision == "tf32"
    before = [getattr(namespace, name) for namespace, name in places]
    try:
        for namespace, name in places:
            setattr(namespace, name, wanted)
        yield
    finally:
        for (namespace, name), value in zip(places, before, strict=True):
            setattr(namespace, name, value)
