"""Weights of pretrained networks from local files and caches.

Nothing in this module uses the network.
"""

from __future__ import annotations

import hashlib
import importlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from torch import Tensor, nn

from fallow.encoders.base import check_file, digest_of_file

# -- files ----------------------------------------------------------------------------------------


def digest_of_folder(folder: Path) -> str:
    """Return a SHA-256 of the files in a folder, 64 hexadecimal digits.

    It covers relative paths and the digests of files, except files whose names begin with a dot.
    """
    h = hashlib.sha256()
    for file in list_files(folder):
        name = file.relative_to(folder).as_posix()
        h.update(f"{digest_of_file(file)}  {name}\n".encode())
    return h.hexdigest()


def list_files(folder: Path) -> list[Path]:
    """List all files in a folder and its subfolders, in the order of their paths."""
    files = []
    for file in folder.rglob("*"):
        is_hidden = any(part.startswith(".") for part in file.relative_to(folder).parts)
        if file.is_file() and not is_hidden:
            files.append(file)
    return sorted(files, key=lambda file: file.relative_to(folder).as_posix())


def read_weights(file: Path) -> Mapping[str, Tensor]:
    """Read the tensors of a safetensors file.

    Other formats can contain code and are not read.  Raises ValueError for any other file.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        return load_file(file)
    except SafetensorError as error:
        raise ValueError(
            f"{file} is not a complete safetensors file ({error}): convert it, or "
            "copy it again"
        ) from error


def fill_network(
    network: nn.Module, file: Path, purpose: str, prefix: str = ""
) -> nn.Module:
    """Load weights from a file into a network, in evaluation mode.

    Additional weights in the file, such as a classifier, are ignored.  prefix: prefix of the names
    in the file of a larger network, whose other weights may have the same names without it.  Raises
    ValueError for missing weights or other shapes.
    """
    own = network.state_dict()
    stored = read_weights(file)
    if not any(name.startswith(prefix) for name in stored):
        prefix = ""  # a file of the network alone
    weights = {}
    for name, value in stored.items():
        short = name.removeprefix(prefix)
        if name.startswith(prefix) and short in own:
            weights[short] = value
    missing = sorted(own.keys() - weights.keys())
    if missing:
        raise ValueError(
            f"{purpose}: {file} lacks {len(missing)} of {len(own)} weights, the first is "
            f"{missing[0]!r}; it belongs to another network"
        )
    try:
        network.load_state_dict(weights)
    except RuntimeError as error:
        raise ValueError(
            f"{purpose}: {file} does not match the network: {error}"
        ) from error
    return network.eval()


def load_pretrained(
    build: Callable[[], nn.Module],
    purpose: str,
    *,
    weights: str | None,
    sha256: str | None,
    find_cached: Callable[[], Path],
    prefix: str = "",
) -> nn.Module:
    """Build a network of a package and load its weights, in evaluation mode.

    weights: the file; None: the file that ``find_cached`` returns.  sha256: the agreed digest of
    either.  prefix: see `fill_network`.  Raises ValueError if the package cannot build it, and for
    missing or different weights.
    """
    try:
        with stay_offline():
            network = build()
    except Exception as error:  # the package raises its own errors
        raise ValueError(f"{purpose} cannot be created: {error}; check its name") from error
    path = str(find_cached()) if weights is None else weights
    file = check_file(path, sha256, purpose)
    return fill_network(network, file, purpose, prefix)


# -- the cache of a hub ---------------------------------------------------------------------------


def find_cached_file(repository: str | None, names: Sequence[str]) -> Path | None:
    """Return the first of these files in the local cache of a repository, or None.

    Nothing is downloaded.
    """
    if not repository:
        return None
    try:
        hub = importlib.import_module("huggingface_hub")
    except ImportError:
        return None
    for name in names:
        cached_file = hub.try_to_load_from_cache(repository, name)
        # otherwise None, or a marker of a missing file
        if isinstance(cached_file, str):
            return Path(cached_file)
    return None


@contextmanager
def stay_offline() -> Iterator[None]:
    """Prevent the hub package from downloading anything in this context."""
    try:
        constants = importlib.import_module("huggingface_hub.constants")
    except ImportError:
        yield
        return
    before = constants.HF_HUB_OFFLINE
    constants.HF_HUB_OFFLINE = True  # type: ignore[attr-defined]  # of a module that is imported here
    try:
        yield
    finally:
        constants.HF_HUB_OFFLINE = before  # type: ignore[attr-defined]
