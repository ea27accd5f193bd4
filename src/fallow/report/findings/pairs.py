"""Pairs of strategies in one study that differ in one thing, and their paired differences."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fallow.study.names import Strategy, faithful
from fallow.study.records import StudyRecords
from fallow.study.statistics import Comparison, compare_pairs, differences


@dataclass(frozen=True)
class Pair:
    """``query`` beside ``against``; ``what`` says in a word what the pair is about."""

    query: str
    against: str
    what: str


def oracle_pairs(strategies: Sequence[str]) -> list[Pair]:
    """``oracle-histogram:score=X`` and plain X: AHFAL's Finding 3.

    >>> oracle_pairs(["random", "oracle-histogram:score=random"])
    [Pair(query='oracle-histogram:score=random', against='random', what='random')]
    """
    parsed = [Strategy.parse(q) for q in strategies]
    found = []
    for told in parsed:
        if told.key != "oraclehistogram" or set(told.spec.fields) - {"score"}:
            continue
        score = str(told.spec.fields.get("score", "entropy"))
        found += [
            Pair(told.query, plain.query, score)
            for plain in parsed
            if (plain.key, plain.settings) == (score, told.settings)
            and not plain.spec.fields
        ]
    return found


def model_pairs(strategies: Sequence[str]) -> list[Pair]:
    """``X:model=global`` and X by the local model: the question of FairFAL's Observation 1.

    >>> model_pairs(["entropy", "entropy:model=global"])[0].what
    'entropy'
    """
    found = []
    parsed = [Strategy.parse(q) for q in strategies]
    for by_global in parsed:
        fields = dict(by_global.spec.fields)
        if fields.pop("model", None) != "global":
            continue
        for other in parsed:
            rest = dict(other.spec.fields)
            is_local = rest.pop("model", "local") == "local"
            same = (other.key, rest, other.settings) == (
                by_global.key,
                fields,
                by_global.settings,
            )
            if is_local and same:
                found.append(Pair(by_global.query, other.query, other.query))
    return found


def setting_pairs(strategies: Sequence[str]) -> list[Pair]:
    """``X@setting=value`` and X: what a change of training, privacy or local model does to X, which
    may have settings of its own.

    >>> setting_pairs(["ksas", "ksas@training=kcfu"])[0].what
    'training=kcfu'
    """
    found = []
    for query in strategies:
        shorter = [q for q in strategies if query.startswith(f"{q}@")]
        if shorter:
            plain = max(shorter, key=len)
            changed = query.removeprefix(plain).split("@")[1:]
            found.append(Pair(query, plain, ", ".join(changed)))
    return found


def code_pairs(strategies: Sequence[str]) -> list[Pair]:
    """``fallow.compat:NAME`` and the strategy as its paper describes it.

    >>> code_pairs(["ksas", "fallow.compat:NaNKSAS"])[0].against
    'ksas'
    >>> code_pairs(["noise_stability:draws=9", "fallow.compat:PlainNoise:draws=9"])[0].what
    'PlainNoise'
    """
    parsed = [Strategy.parse(q) for q in strategies]
    pairs = []
    for code in parsed:
        alike: tuple[dict[str, Any], ...] = ({}, dict(code.spec.fields))
        plain = {
            s.spec.name: s.query
            for s in parsed
            if not s.is_code and not s.settings and dict(s.spec.fields) in alike
        }
        name = faithful(code.spec.name.rpartition(":")[2], plain) if code.is_code else None
        if name:
            pairs.append(Pair(code.query, plain[name], code.spec.name.rpartition(":")[2]))
    return pairs


def control_pairs(strategies: Sequence[str]) -> list[Pair]:
    """FALE, and what it is without its parts under the same training: uniform rows, no weights.

    >>> control_pairs(
    ...     ["random", "random@training=server-solve", "fale@training=server-solve"]
    ... )[0]
    Pair(query='fale@training=server-solve', against='random@training=server-solve', what='random')
    """
    parsed = [Strategy.parse(q) for q in strategies]
    return [
        Pair(ours.query, control.query, control.spec.name)
        for ours in parsed
        for control in parsed
        if ours.key == "fale" and _is_control(control, ours)
        if _training(control) == _training(ours)
    ]


def _is_control(control: Strategy, fale: Strategy) -> bool:
    """Random, or the same draws without the weights that the other has."""
    rest, fields = dict(fale.spec.fields), dict(control.spec.fields)
    is_bare = fields.pop("weights", "importance") == "none"
    is_weighted = rest.pop("weights", "importance") != "none"
    same_draws = (control.key, fields) == ("fale", rest)
    return control.key == "random" or (same_draws and is_bare and is_weighted)


def _training(strategy: Strategy) -> list[str]:
    """How models are trained; least squares at the server are the same with masks and without."""
    words = ("training=solve" if w.endswith("-solve") else w for w in strategy.trainer)
    return sorted(w for w in words if w != "training=fedavg")


def compared(study: StudyRecords, pairs: Sequence[Pair]) -> list[tuple[Pair, Comparison]]:
    """Final scores of the pairs with two seeds in common or more; Holm is over these pairs.

    Accuracies are in points, errors in their own unit.
    """
    scale = 100.0 if study.measure == "accuracy" else 1.0
    scores = {
        q: {k: scale * s for k, s in study.final(q).items()}
        for pair in pairs
        for q in (pair.query, pair.against)
    }
    ready = [p for p in pairs if len(differences(scores[p.query], scores[p.against])) > 1]
    names = [(p.query, p.against) for p in ready]
    tests = compare_pairs(scores, names, higher_is_better=study.higher_is_better)
    return list(zip(ready, tests, strict=True))
