"""Networks in ONNX files."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar, final

import torch
from torch import Tensor

from fallow.core.ask import Ask
from fallow.core.contract import Contract
from fallow.core.limits import PositiveInt, check_fields
from fallow.core.optional import import_optional
from fallow.core.suggestions import explain_constructor
from fallow.core.types import State
from fallow.encoders.base import Shape, check_file, describe_shape, digest_of_file

FOLDER = "session.model_external_initializers_file_folder_path"
"""Setting of onnxruntime: folder of the weights in other files."""


@explain_constructor
@final
@dataclass(frozen=True)
class ONNX:
    """Encode examples with the first output of an ONNX network, flattened.

    Parameters
    ----------
    weights : str
        Path of the file, which contains all weights.  Its only input has the shape (b, *shape) and
        type float32.
    sha256 : str, optional
        SHA-256 of the file, with which sites verify that they have the same one.
    batch : int
        Number of examples at a time.
    half : bool
        Round features to float16.

    Examples
    --------
    >>> ONNX("net.onnx", batch=8)
    ONNX(weights='net.onnx', sha256=None, batch=8, half=False)
    """

    weights: str = ""
    sha256: str | None = None
    batch: PositiveInt = 64
    half: bool = False

    version: ClassVar[int] = 1
    contract: ClassVar[Contract] = Contract(title="ONNX")

    def __post_init__(self) -> None:
        check_fields(self)
        if not self.weights:
            raise ValueError(
                "ONNX: weights is missing; give the file: onnx:weights=FILE.onnx"
            )

    def width(self, shape: Shape) -> int:
        return self.encode(torch.zeros((1, *shape)), {}).shape[1]

    def fit(self, ask: Ask, shape: Shape) -> State:
        return {}

    def encode(self, x: Tensor, state: State) -> Tensor:
        session = open_session(self.weights, self.sha256)
        name = session.get_inputs()[0].name
        parts = []
        for block in torch.split(x, self.batch):
            try:
                first = session.run(None, {name: block.float().numpy()})[0]
                parts.append(torch.from_numpy(first).flatten(1).float())
            except Exception as error:  # the package raises its own errors
                shape = describe_shape(tuple(x.shape[1:]))
                raise ValueError(
                    f"{self.weights} cannot encode examples of shape {shape}: {error}"
                ) from error
        return torch.cat(parts)

    def weights_digest(self) -> str:
        return digest_of_file(check_file(self.weights, self.sha256, "the encoder onnx"))


@cache
def open_session(weights: str, sha256: str | None) -> Any:
    """Open an inference session; ValueError if package or file is missing or invalid.

    Weights in other files are not read, because the digest of the file does not cover them.
    """
    purpose = f"the encoder onnx:weights={weights}"
    package = import_optional("onnxruntime", "fallow-encoders[onnx]", purpose)
    file = check_file(weights, sha256, purpose)
    options = package.SessionOptions()
    try:
        with tempfile.TemporaryDirectory() as empty:
            options.add_session_config_entry(FOLDER, empty)
            return package.InferenceSession(
                file.read_bytes(), options, providers=["CPUExecutionProvider"]
            )
    except Exception as error:  # the package raises its own errors
        raise ValueError(f"{file} is not a valid ONNX file: {error}") from error
