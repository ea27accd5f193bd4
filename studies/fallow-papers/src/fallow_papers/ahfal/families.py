"""Families of strategies by the model that scores examples, as declared in their contracts.

AHFAL calls strategies that read only a site's own model *centralized* (each site runs the
classic rule itself) and those that also read the global model *decentralized*. Here they
are named by the models: ``local``, ``global``, ``both``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, is_dataclass
from typing import Literal

from fallow import strategies
from fallow.core.build import build
from fallow.core.extensions import fold_name
from fallow.core.methods import Query
from fallow.settings.variants import ParsedStrategy
from fallow.study.known import PaperResults
from fallow.study.records import StudyRecords

Family = Literal["local", "global", "both"]
FAMILIES: dict[Family, str] = {
    "local": "local model only",
    "global": "global model only",
    "both": "local and global model",
}
"""Description of each family."""

NO_RESULTS = PaperResults()
"""Default: no published results."""


def build_strategy(strategy: str, known: PaperResults) -> Query | None:
    """Return the strategy of a query; None for a custom one.

    A study is only data: custom code that it names is not run.
    """
    spec = ParsedStrategy.parse(strategy).spec
    code = known.code(spec)
    try:
        if code is not None:
            from_code: Query = code.load()(**spec.fields)
            return from_code
        if ":" in spec.name:
            return None
        own: Query = build(strategies, spec.name, **spec.fields)
        return own
    except (TypeError, ValueError):
        return None


def family(strategy: str, known: PaperResults = NO_RESULTS) -> Family | None:
    """Return the model whose predictions a strategy uses: "local", "global" or "both".

    The result is "both" if the declaration requires both models. Otherwise, it is the value
    of the field ``model`` or the required model. It is ``None`` for a strategy that is
    unknown, uses no model or reads true labels.

    >>> family("entropy"), family("entropy:model=global"), family("logo"), family("random")
    ('local', 'global', 'both', None)
    """
    method = build_strategy(strategy, known)
    if method is None or method.contract.simulator_only:
        return None
    reads = {"local", "global"}.intersection(method.contract.needs)
    if not reads:
        return None
    if len(reads) == 2:
        return "both"
    assert is_dataclass(method)  # noqa: S101 - methods are, which their protocol cannot say
    settings = {field.name: getattr(method, field.name) for field in fields(method)}
    decides = settings.get("model") or reads.pop()
    if decides == "global":
        return "global"
    return "local"


def members(studies: Sequence[StudyRecords]) -> dict[Family, tuple[str, ...]]:
    """Return the strategies of each family that all studies have, in the order of the
    first.

    A strategy with ``@`` settings, or in a variant of public code, counts only if its plain
    form is missing. One with another training never counts. A reference that reads both
    models is under test: it and its variants are not members.
    """
    shared = [q for q in studies[0].strategies if all(q in s.strategies for s in studies)]
    known = studies[0].study.known
    result: dict[Family, list[str]] = {}
    for strategy in shared:
        kind = family(strategy, known)
        is_plain = not _is_variant(strategy, shared, known)
        if kind and is_plain and not _is_tested(strategy, studies):
            result.setdefault(kind, []).append(strategy)
    return {kind: tuple(result[kind]) for kind in FAMILIES if kind in result}


def _is_tested(strategy: str, studies: Sequence[StudyRecords]) -> bool:
    """Return whether a strategy is under test: the reference of the study, or a variant of
    it.
    """
    known = studies[0].study.known
    key = ParsedStrategy.parse(strategy).key
    for study in studies:
        reference = study.study.reference
        if not reference or family(reference, known) != "both":
            continue
        if ParsedStrategy.parse(reference).key == key:
            return True
    return False


def _is_variant(strategy: str, shared: Sequence[str], known: PaperResults) -> bool:
    named = ParsedStrategy.parse(strategy)
    if named.trains_otherwise:
        return True
    if named.settings:
        return strategy.partition("@")[0] in shared
    code = known.code(named.spec)
    if code is None:
        return False
    plain = {fold_name(q) for q in shared if ":" not in q and "@" not in q}
    return fold_name(code.of) in plain
