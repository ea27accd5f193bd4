"""BibTeX of Fallow and of the papers of the algorithms that a study used."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator
from pathlib import Path

from fallow import encoders
from fallow.core.build import find
from fallow.core.contract import Contract
from fallow.core.methods import Method
from fallow.core.names import BUILT_IN, NamePolicy
from fallow.core.version import __version__
from fallow.encoders.base import Shape
from fallow.experiment.encoding import encoder_of
from fallow.experiment.finished import TrainedModel
from fallow.experiment.methods import methods_of
from fallow.settings.config import ExperimentConfig, config_from
from fallow.settings.variants import variant
from fallow.storage.files import load_tree
from fallow.storage.plain import one_line
from fallow.study.reading import read_study

TITLE = "Fallow: federated active learning"
AUTHORS = "{The Fallow authors}"
RELEASED = "2026"


def cite_strategies(
    config: ExperimentConfig,
    strategies: Iterable[str],
    shape: Shape | None = None,
    policy: NamePolicy = BUILT_IN,
) -> str:
    """Return BibTeX entries without duplicates, that of Fallow first.

    Parameters
    ----------
    config : ExperimentConfig
        Experiment configuration.
    strategies : iterable of str
        Query strategies, optionally with settings.
    shape : tuple of int, optional
        Shape of an example, which determines the encoder ``auto``.
    policy : NamePolicy, optional
        Names that may be resolved.  Custom algorithms, and names that are not resolved, become
        comments.

    >>> print(cite_strategies(ExperimentConfig("a"), ["badge"]).splitlines()[0])
    @software{fallow,
    """
    title = f"{{{TITLE}}}"
    own = _format_entry(
        "software",
        "fallow",
        title=title,
        author=AUTHORS,
        year=RELEASED,
        version=__version__,
    )
    entries = {"fallow": own}
    comments: dict[str, None] = {}
    for strategy in strategies:
        try:
            algorithms = list(_find_algorithms(variant(config, strategy), shape, policy))
        except ValueError as error:
            comments[f"% {one_line(strategy)} is not cited: {one_line(str(error))}"] = None
            continue
        for module, contract in algorithms:
            if contract.authors:
                key = _make_key(contract)
                entries[key] = _format_entry(
                    "misc",
                    key,
                    title=f"{{{contract.paper}}}",
                    author=contract.authors,
                    year=str(contract.year),
                )
            elif not module.startswith("fallow."):
                comments[
                    f"% {one_line(contract.title)} is not part of Fallow: cite its paper"
                ] = None
    blocks = [*entries.values()]
    if comments:
        blocks.append("\n".join(comments) + "\n")
    return "\n".join(blocks)


def cite_study(folder: Path, policy: NamePolicy = BUILT_IN) -> str:
    """Return `cite_strategies` for all query strategies of the study in ``folder``."""
    study = read_study(folder).study
    config = config_from(dict(study.config))
    shape = None
    for path in sorted(folder.rglob("model.safetensors")):
        saved: TrainedModel = load_tree(path, path.parent)
        shape = tuple(saved["example_spec"]["shape"])
        break
    return cite_strategies(config, study.strategies, shape, policy)


def _find_algorithms(
    config: ExperimentConfig, shape: Shape | None, policy: NamePolicy
) -> Iterator[tuple[str, Contract]]:
    """Yield module and disclosure declaration of each algorithm that may have a paper."""
    methods = methods_of(config, policy=policy)
    algorithms: list[Method] = [methods["query"], methods["training"]]
    if "initial" in methods:
        algorithms.append(methods["initial"])
    if "head" in methods:
        algorithms.append(methods["head"])
    if shape is not None:
        encoder = encoder_of(config, shape, policy)
        if encoder is not None:
            algorithms.append(encoder)
    for algorithm in algorithms:
        yield type(algorithm).__module__, algorithm.contract
    if config.encoder is not None and shape is None:
        cls = find((encoders,), config.encoder.name, policy)
        yield cls.__module__, cls.contract


def _format_entry(kind: str, key: str, **fields: str) -> str:
    lines = [f"  {name} = {{{value}}},\n" for name, value in fields.items()]
    return f"@{kind}{{{key},\n{''.join(lines)}}}\n"


def _make_key(contract: Contract) -> str:
    """Return a key such as ``ash2020deep``: first author, year, first long word of the title."""
    author = re.split(r"[ ,]", contract.authors)[0]
    word = next(word for word in re.findall(r"\w+", contract.paper) if len(word) > 3)
    plain = unicodedata.normalize("NFKD", f"{author}{contract.year}{word}")
    return plain.encode("ascii", "ignore").decode().lower()
