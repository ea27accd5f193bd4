"""Texts encoded by networks of the package sentence-transformers.

Weights come from a folder or from the cache of the hub (Reimers, Gurevych: Sentence-BERT, 2019).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar, final

import torch
from torch import Tensor

from fallow.core.ask import Ask
from fallow.core.contract import Contract
from fallow.core.limits import PositiveInt, check_fields
from fallow.core.optional import import_optional
from fallow.core.suggestions import explain_constructor
from fallow.core.types import State
from fallow.encoders.base import Shape, check_digest, describe_shape
from fallow.encoders.texts import rows_to_texts
from fallow_encoders.weights import digest_of_folder, list_files, stay_offline

PICKLED = {".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle"}
"""Endings of files that can hold code."""
MODULES = "modules.json"
ROUTER = "router_config.json"
"""Files that name classes, which the package imports."""
OWN_CLASSES = "sentence_transformers."
OF_PACKAGE = "sentence-transformers/"  # publisher of networks with a one-word name


@explain_constructor
@final
@dataclass(frozen=True)
class SentenceTransformers:
    """Encode texts with a pretrained sentence transformer, one vector per text.

    An example is a text in the format of `texts_to_rows`: character codes, zero-padded.

    Parameters
    ----------
    network : str
        Name on the hub, such as "all-MiniLM-L6-v2".  The network must be in the local cache;
        nothing is downloaded.
    weights : str, optional
        Path of a folder saved by the package, with weights in safetensors files, instead of
        ``network``.
    sha256 : str, optional
        SHA-256 of the folder (`digest_of_folder`), with which sites verify that they have the same
        one.
    batch : int
        Number of texts at a time.
    half : bool
        Round features to float16.

    References
    ----------
    Reimers, Gurevych. Sentence-BERT: Sentence Embeddings using Siamese BERT-Networks. 2019.

    Examples
    --------
    >>> from fallow import texts_to_rows
    >>> rows = texts_to_rows(["two beds", "four beds"])
    >>> rows.shape, SentenceTransformers("all-MiniLM-L6-v2").batch
    (torch.Size([2, 9]), 64)
    """

    network: str = ""
    weights: str | None = None
    sha256: str | None = None
    batch: PositiveInt = 64
    half: bool = False

    version: ClassVar[int] = 1
    contract: ClassVar[Contract] = Contract(
        title="Sentence Transformers",
        paper="Sentence-BERT: Sentence Embeddings using Siamese BERT-Networks",
        year=2019,
        authors="Reimers, Nils and Gurevych, Iryna",
    )

    def __post_init__(self) -> None:
        check_fields(self)
        if not self.network and not self.weights:
            raise ValueError(
                "Sentence Transformers: network is missing; set it, such as "
                "sentence-transformers:network=all-MiniLM-L6-v2, or a folder: "
                "weights=FOLDER"
            )
        if self.network and self.weights:
            raise ValueError(
                f"Sentence Transformers: network is {self.network!r} and weights is "
                f"{self.weights!r}, which replaces it; set one of them"
            )

    def width(self, shape: Shape) -> int:
        if len(shape) != 1:
            raise ValueError(
                "Sentence Transformers encodes texts, one number per character, and an "
                f"example has the shape {describe_shape(shape)}; convert texts with "
                "fl.texts_to_rows"
            )
        return self.encode(torch.zeros((1, *shape)), {}).shape[1]

    def fit(self, ask: Ask, shape: Shape) -> State:
        return {}

    def encode(self, x: Tensor, state: State) -> Tensor:
        network = load_network(self.network, self.weights, self.sha256)
        vectors = network.encode(
            rows_to_texts(x),
            batch_size=self.batch,
            show_progress_bar=False,
            convert_to_tensor=True,
            device="cpu",
        )
        return torch.as_tensor(vectors).float().clone()

    def weights_digest(self) -> str:
        """Return a digest of all files of the network: weights, vocabulary and settings."""
        return digest_of_folder(find_folder(self.network, self.weights, self.sha256))


# -- the network ----------------------------------------------------------------------------------


@cache
def load_network(name: str, weights: str | None, sha256: str | None) -> Any:
    """Return the network of the package, in evaluation mode.

    Raises ValueError if the package or the network is missing or invalid.
    """
    purpose = _describe_purpose(name, weights)
    package = import_optional(
        "sentence_transformers", "fallow-encoders[sentence-transformers]", purpose
    )
    folder = find_folder(name, weights, sha256)
    try:
        with stay_offline():
            network = package.SentenceTransformer(
                str(folder),
                device="cpu",
                trust_remote_code=False,
                local_files_only=True,
                model_kwargs={"use_safetensors": True},
            )
    except Exception as error:  # the package raises its own errors
        raise ValueError(
            f"{purpose}: {folder} does not contain a network of "
            f"sentence-transformers: {error}"
        ) from error
    return network.eval()


def find_folder(name: str, weights: str | None, sha256: str | None) -> Path:
    """Return the folder of the network, without files that can contain code.

    Without ``weights``, this is the folder in the cache of the hub.  Raises ValueError if it is
    missing, or differs from the agreed one.
    """
    purpose = _describe_purpose(name, weights)
    if weights is None:
        folder = _find_cached(name, purpose)
    else:
        folder = Path(weights)
    if not folder.is_dir():
        raise ValueError(
            f"{purpose}: there is no folder {weights!r}; put the network there, in the "
            "format of SentenceTransformer.save_pretrained"
        )
    if sha256 is not None:
        check_digest(str(folder), digest_of_folder(folder), sha256, purpose)
    for file in list_files(folder):
        has_other = any(file.parent.glob("*.safetensors"))
        if file.suffix in PICKLED and not has_other:
            raise ValueError(
                f"{purpose}: {file} can contain code and is not read; save the network "
                "again with safe_serialization=True"
            )
        if file.name in (MODULES, ROUTER):
            _check_modules(file, purpose)
    return folder


def _check_modules(file: Path, purpose: str) -> None:
    """Raise ValueError unless all modules are classes of the package, with files in the folder.

    The package before version 6 imports any class that a local folder names.
    """
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
        if file.name == MODULES:
            modules = [(str(module["path"]), str(module["type"])) for module in content]
        else:
            modules = [(str(path), str(name)) for path, name in content["types"].items()]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(
            f"{purpose}: {file} does not list the modules of a network of "
            f"sentence-transformers: {error}"
        ) from error
    for path, name in modules:
        if not name.startswith(OWN_CLASSES):
            raise ValueError(
                f"{purpose}: {file} names the class {name!r}, which can run code; only classes "
                "of sentence_transformers are loaded"
            )
        parts = Path(path).parts
        if Path(path).is_absolute() or any(part.startswith(".") for part in parts):
            raise ValueError(
                f"{purpose}: {file} names the folder {path!r}, which its digest does not "
                "cover; use subfolders whose names do not begin with a dot"
            )


def _find_cached(name: str, purpose: str) -> Path:
    """Return the network in the cache of the hub; ValueError if missing."""
    hub: ModuleType = import_optional("huggingface_hub", "huggingface-hub", purpose)
    repository = name
    if "/" not in name:
        repository = OF_PACKAGE + name
    try:
        return Path(hub.snapshot_download(repository, local_files_only=True))
    except Exception as error:  # the package raises its own errors
        raise ValueError(
            f"{purpose}: the cache of this machine does not have {repository}, and a "
            "study downloads nothing; download it first with SentenceTransformer(NAME), "
            "or give weights=FOLDER"
        ) from error


def _describe_purpose(name: str, weights: str | None) -> str:
    if weights is None:
        return f"the encoder sentence-transformers:network={name}"
    return f"the encoder sentence-transformers:weights={weights}"
