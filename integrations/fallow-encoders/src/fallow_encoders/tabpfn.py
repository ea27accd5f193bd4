"""Tables encoded by TabPFN, a network that was pretrained on synthetic tables.

Hollmann et al.: Accurate predictions on small data with a tabular foundation model, 2025.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from functools import cache
from pathlib import Path
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
from fallow_encoders.weights import read_weights, stay_offline

ENDING = (
    ".safetensors"  # by which TabPFN detects the format; its other format can contain code
)


@explain_constructor
@final
@dataclass(frozen=True)
class TabPFN:
    """Encode examples of a table with TabPFN, given public context examples.

    TabPFN encodes an example relative to a context of labeled examples.  The examples of the sites
    are not used as context, because they would have to leave the sites.

    Parameters
    ----------
    weights : str
        Path of a safetensors file as published by TabPFN.
    sha256 : str, optional
        SHA-256 of ``weights``, with which sites verify that they have the same file.
    context : str
        Path of a safetensors file with public examples of the same columns, ``x`` (n, d), and
        targets ``y`` (n,): integers are classes, others are regression targets.
    context_sha256 : str, optional
        SHA-256 of ``context``.
    batch : int
        Number of examples at a time.
    half : bool
        Round features to float16.

    References
    ----------
    Hollmann, Müller, Purucker, Krishnakumar, Körfer, Hoo, Schirrmeister, Hutter. Accurate
    predictions on small data with a tabular foundation model. 2025.

    Examples
    --------
    >>> TabPFN("tabpfn.safetensors", context="public.safetensors").width((3, 8, 8))
    Traceback (most recent call last):
    ValueError: TabPFN encodes examples of tables, and an example has the shape 3 x 8 x 8
    """

    weights: str = ""
    sha256: str | None = None
    context: str = ""
    context_sha256: str | None = None
    batch: PositiveInt = 1024
    half: bool = False

    version: ClassVar[int] = 1
    contract: ClassVar[Contract] = Contract(
        title="TabPFN",
        paper="Accurate predictions on small data with a tabular foundation model",
        year=2025,
        authors="Hollmann, Noah and Müller, Samuel and Purucker, Lennart and "
        "Krishnakumar, Arjun and Körfer, Max and Hoo, Shi Bin and "
        "Schirrmeister, Robin Tibor and Hutter, Frank",
    )

    def __post_init__(self) -> None:
        check_fields(self)
        for name in ("weights", "context"):
            if not getattr(self, name):
                raise ValueError(
                    f"TabPFN: {name} is missing; give two safetensors files, of the "
                    "network and of public examples: tabpfn:weights=FILE:context=FILE"
                )

    def width(self, shape: Shape) -> int:
        if len(shape) != 1:
            raise ValueError(
                "TabPFN encodes examples of tables, and an example has the shape "
                f"{describe_shape(shape)}"
            )
        return self.encode(torch.zeros((1, *shape)), {}).shape[1]

    def fit(self, ask: Ask, shape: Shape) -> State:
        return {}

    def encode(self, x: Tensor, state: State) -> Tensor:
        network = load_tabpfn(self.weights, self.sha256, self.context, self.context_sha256)
        parts = []
        for block in torch.split(x.flatten(1).float(), self.batch):
            try:
                made = network.get_embeddings(block.numpy(), data_source="test")
            except Exception as error:  # the package raises its own errors
                raise ValueError(
                    f"TabPFN cannot encode examples of {block.shape[1]} numbers with the "
                    f"context {self.context}: {error}"
                ) from error
            parts.append(torch.as_tensor(made).reshape(len(block), -1).float())
        return torch.cat(parts)

    def weights_digest(self) -> str:
        """Return a digest of both files."""
        h = hashlib.sha256()
        for path, sha256 in (
            (self.weights, self.sha256),
            (self.context, self.context_sha256),
        ):
            file = check_file(path, sha256, "the encoder tabpfn")
            h.update(digest_of_file(file).encode())
        return h.hexdigest()


@cache
def load_tabpfn(
    weights: str, sha256: str | None, context: str, context_sha256: str | None
) -> Any:
    """Return TabPFN with its context, with a single estimator.

    Raises ValueError if the package or a file is missing or invalid.
    """
    purpose = f"the encoder tabpfn:weights={weights}"
    os.environ["TABPFN_DISABLE_TELEMETRY"] = "1"  # it is on by default
    package = import_optional("tabpfn", "fallow-encoders[tabpfn]", purpose)
    file = check_file(weights, sha256, purpose)
    if file.suffix != ENDING:
        raise ValueError(
            f"{purpose}: {file} does not end in {ENDING}; files of other formats can "
            "contain code and are not read"
        )
    read_weights(file)  # raises an error if it is invalid
    x, y = read_context(check_file(context, context_sha256, purpose))
    name = "TabPFNClassifier"
    if y.is_floating_point():  # regression targets
        name = "TabPFNRegressor"
    try:
        with stay_offline():
            network = getattr(package, name)(
                model_path=str(file),
                n_estimators=1,
                device="cpu",
                random_state=0,
                inference_precision=torch.float32,
                ignore_pretraining_limits=True,
            )
            network.fit(x.numpy(), y.numpy())
    except Exception as error:  # the package raises its own errors
        raise ValueError(f"{purpose} cannot be created: {error}") from error
    return network


def read_context(file: Path) -> tuple[Tensor, Tensor]:
    """Return the public examples x (n, d) float32 and their targets y (n,).

    Raises ValueError for a file without them.
    """
    weights = read_weights(file)
    x = weights.get("x")
    y = weights.get("y")
    if x is None or y is None or x.ndim != 2 or y.shape != x.shape[:1] or not len(x):
        raise ValueError(
            f"{file} does not contain a context: it needs examples x (n, columns) and "
            "their targets y (n,)"
        )
    return x.float(), y
