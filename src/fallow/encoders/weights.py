"""Weights of pretrained networks from files and caches of this machine.  Nothing here asks a
network for anything."""

from __future__ import annotations

import hashlib
import importlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from torch import Tensor, nn

CHUNK = 2**20  # bytes of a file that are read at a time


# -- files ----------------------------------------------------------------------------------------


def check_file(path: str, sha256: str | None, purpose: str) -> Path:
    """The file of weights, which must have the digest that was agreed on, if one was.

    Raises ValueError where it is not there, or is another one.
    """
    file = Path(path)
    if not file.is_file():
        raise ValueError(
            f"{purpose}: there is no file of weights {path!r}; put it there, or name another one"
        )
    if sha256 is not None:
        check_digest(path, digest_of_file(file), sha256, purpose)
    return file


def check_digest(path: str, found: str, sha256: str, purpose: str) -> None:
    """Raise ValueError where another SHA-256 was agreed on than the one that was ``found``."""
    if found != sha256.lower():
        raise ValueError(
            f"{purpose}: {path} has the SHA-256 {found} and {sha256} was agreed on: these are other "
            "weights"
        )


def digest_of_file(file: Path) -> str:
    """The SHA-256 of a file, 64 hexadecimal digits."""
    h = hashlib.sha256()
    with file.open("rb") as content:
        while block := content.read(CHUNK):
            h.update(block)
    return h.hexdigest()


def digest_of_folder(folder: Path) -> str:
    """A SHA-256 of the files in a folder, by their paths in it and their own digests, 64
    hexadecimal digits.  Files whose names begin with a dot do not count."""
    h = hashlib.sha256()
    for file in list_files(folder):
        name = file.relative_to(folder).as_posix()
        h.update(f"{digest_of_file(file)}  {name}\n".encode())
    return h.hexdigest()


def list_files(folder: Path) -> list[Path]:
    """All files in a folder and in those below it, in the order of their paths."""
    files = []
    for file in folder.rglob("*"):
        is_hidden = any(part.startswith(".") for part in file.relative_to(folder).parts)
        if file.is_file() and not is_hidden:
            files.append(file)
    return sorted(files, key=lambda file: file.relative_to(folder).as_posix())


def digest_of_module(network: nn.Module) -> str:
    """A SHA-256 of all weights by their names, 64 hexadecimal digits."""
    h = hashlib.sha256()
    for name, value in sorted(network.state_dict().items()):
        h.update(repr((name, str(value.dtype), tuple(value.shape))).encode())
        h.update(value.detach().cpu().contiguous().numpy().tobytes())
    return h.hexdigest()


def read_weights(file: Path) -> Mapping[str, Tensor]:
    """The tensors of a file of safetensors.  No other format is read: theirs can hold code.

    Raises ValueError for any other file.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        return load_file(file)
    except SafetensorError as error:
        raise ValueError(
            f"{file} is no whole file of safetensors ({error}): convert it, or copy it again"
        ) from error


def fill_network(
    network: nn.Module, file: Path, purpose: str, prefix: str = ""
) -> nn.Module:
    """The network with the weights of a file, in evaluation mode; what the file has beside them,
    such as a head, is left out.

    prefix: what the file writes before the names of weights, where it holds a larger network.
    Raises ValueError where weights are missing or of another shape.
    """
    own = network.state_dict()
    given = {}
    for name, value in read_weights(file).items():
        short = name.removeprefix(prefix)
        if short in own:
            given[short] = value
    missing = sorted(own.keys() - given.keys())
    if missing:
        raise ValueError(
            f"{purpose}: {file} lacks {len(missing)} of {len(own)} weights, the first is "
            f"{missing[0]!r}; it is a file of another network"
        )
    try:
        network.load_state_dict(given)
    except RuntimeError as error:
        raise ValueError(f"{purpose}: {file} does not fit: {error}") from error
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
    """A network as its package builds it, with weights from a file, in evaluation mode.

    weights: the file, with the digest that was agreed on; None: the one that ``find_cached`` finds
    on this machine.  prefix: see `fill_network`.
    Raises ValueError where the package cannot build it, and where weights are missing or others.
    """
    try:
        with stay_offline():
            network = build()
    except Exception as error:  # of a package with errors of its own
        raise ValueError(f"{purpose} cannot be made: {error}; check its name") from error
    if weights is None:
        file = find_cached()
    else:
        file = check_file(weights, sha256, purpose)
    return fill_network(network, file, purpose, prefix)


# -- the cache of a hub ---------------------------------------------------------------------------


def find_cached_file(repository: str | None, names: Sequence[str]) -> Path | None:
    """The first file of these names that a hub's cache on this machine has of a repository; None
    where it has none.  Nothing is fetched."""
    if not repository:
        return None
    try:
        hub = importlib.import_module("huggingface_hub")
    except ImportError:
        return None
    for name in names:
        cached_file = hub.try_to_load_from_cache(repository, name)
        # else None, or a mark that the repository has no such file
        if isinstance(cached_file, str):
            return Path(cached_file)
    return None


@contextmanager
def stay_offline() -> Iterator[None]:
    """Within it the hub's own package, which networks are loaded by, fetches nothing."""
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
