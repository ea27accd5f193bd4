"""Declared replies and arguments of the client functions for labeling tasks and test scores."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import final

from torch import Tensor

from fallow.core.composites import Composite, Parts
from fallow.core.values import (
    Count,
    Kind,
    NonNegative,
    Optional,
    Real,
    SenderFacts,
    Text,
    Whole,
)
from fallow.experiment.measuring import Measurements
from fallow.privacy.encryption import HALF

# notes about a site, for the checks of later replies
ALLOWED = "allowed"
"""Labeling tasks that are permitted in the open step."""
TESTS = "tests"
"""Registered test examples."""

LABELS = ("labeled", "validation", "pool")
"""Fields with the examples of a site for training, for validation, and without a label."""
SETTLED = ("answered", "declined")
PREDICTED = (
    "blind",
    "blind_agreed",
    "chosen",
    "chosen_agreed",
    "confirmed",
    "again",
    "again_agreed",
)
"""Counts of labels beside predictions and without, fields of `PredictionUse`."""
NO_CLASS = ("none_of_these", "decided")
"""Counts of examples that no class fits, and of all with an answer, over all runs of a site."""
STATES = ("answered", "declined", "open", "conflicts")
"""States of labeling tasks, of which each task has at most one."""
DEADLINE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\+00:00")
"""Format of a deadline."""
YEARS = range(2000, 3000)
"""Years of a deadline that every time zone can display."""


def _whole(names: Iterable[str]) -> dict[str, Kind]:
    return {name: Whole() for name in names}


def _add(parts: Parts, names: tuple[str, ...]) -> float:
    return sum(float(parts[name]) for name in names)


@final
@dataclass(frozen=True)
class Registration(Composite):
    """Examples of a site, its version, and its key for peer messages.

    schema: hash that a site must report; "" for any.  code: fingerprint of the agreed distributions
    that it must report, or "" if the study uses only Fallow.  has_cases: an example has several
    rows, over which encoders are fitted; their number is registered too.
    """

    schema: str = ""
    code: str = ""
    has_cases: bool = False

    def fields(self, sizes: Mapping[str, int]) -> dict[str, Kind]:
        known = (self.schema,) if self.schema else ()
        code: dict[str, Kind] = {}
        if self.code:
            fix = "compare the installed distributions with federation.distributions in study.toml"
            code = {"code": Text((self.code,), fix)}
        counts = _whole(LABELS)
        slices: dict[str, Kind] = {"slices": Whole(low=1)} if self.has_cases else {}
        return {
            "rows": Whole(low=1),
            "test": Whole(),
            **counts,
            "schema": Text(known, "compare its study.toml with the coordinator's"),
            "fallow": Text(),
            **code,
            **slices,
            "seal": Count(HALF),
        }

    def find_fault(self, parts: Parts, known: SenderFacts) -> str | None:
        together = _add(parts, LABELS)
        rows = float(parts["rows"])
        if together > rows:
            return f"{', '.join(LABELS)} are {together:g} together, but rows is {rows:g}"
        if self.has_cases and float(parts["slices"]) < rows:
            return f"slices is {parts['slices']:g}, but rows is {rows:g}"
        return None

    def note(self, parts: Parts) -> dict[str, float]:
        return {TESTS: float(parts["test"])}


@final
@dataclass(frozen=True)
class NewTasks(Composite):
    """Number of labeling tasks that a site created."""

    def fields(self, sizes: Mapping[str, int]) -> dict[str, Kind]:
        return _whole(["asked"])

    def find_fault(self, parts: Parts, known: SenderFacts) -> str | None:
        asked = float(parts["asked"])
        allowed = known.noted.get(ALLOWED, known.rows)
        if asked > allowed:
            return f"asked is {asked:g}, but {allowed:g} labeling tasks are permitted"
        return None


@final
@dataclass(frozen=True)
class EndedTasks(Composite):
    """Labeling tasks of a cycle that has ended, and the labels and other examples of the site.

    has_agreement: with Krippendorff's alpha of the annotators, or None over too few examples.
    has_predictions: with counts of labels that equal predictions.
    has_none: with counts of examples that no class fits.
    """

    has_agreement: bool = False
    has_predictions: bool = False
    has_none: bool = False

    def fields(self, sizes: Mapping[str, int]) -> dict[str, Kind]:
        fields = _whole(("asked", *SETTLED, *LABELS))
        if self.has_agreement:
            fields["alpha"] = Optional(Real(bound=1.0))
        if self.has_predictions:
            fields |= _whole(PREDICTED)
        if self.has_none:
            fields |= _whole(NO_CLASS)
        return fields

    def find_fault(self, parts: Parts, known: SenderFacts) -> str | None:
        settled = _add(parts, SETTLED)
        asked = float(parts["asked"])
        allowed = known.noted.get(ALLOWED, known.rows)
        if not settled <= asked <= allowed:
            return (
                f"asked is {asked:g}, and answered and declined are {settled:g} "
                f"together, but {allowed:g} labeling tasks were permitted"
            )
        fault = _find_larger_part(parts)
        if fault is not None:
            return fault
        labels = _add(parts, LABELS[:2])
        if labels > known.labels:
            return (
                f"labeled and validation are {labels:g} together, and "
                f"{known.describe_limit('labels')}"
            )
        together = _add(parts, LABELS)
        if together > known.rows:
            return (
                f"labeled, validation and pool are {together:g} together, and "
                f"{known.describe_limit('rows')}"
            )
        return None


def _find_larger_part(parts: Parts) -> str | None:
    """Return why two of the counts about annotators contradict each other, or None."""
    wholes = {
        "blind_agreed": "blind",
        "chosen_agreed": "chosen",
        "again_agreed": "again",
        "none_of_these": "decided",
    }
    for name, whole in wholes.items():
        if name in parts and float(parts[name]) > float(parts[whole]):
            return f"{name} is {parts[name]:g}, but {whole} is {parts[whole]:g}"
    return None


@final
@dataclass(frozen=True)
class Progress(Composite):
    """Labeling tasks of the open step by their state."""

    def fields(self, sizes: Mapping[str, int]) -> dict[str, Kind]:
        return _whole(("asked", *STATES))

    def find_fault(self, parts: Parts, known: SenderFacts) -> str | None:
        together = _add(parts, STATES)
        asked = float(parts["asked"])
        if together > asked:
            return f"{', '.join(STATES)} are {together:g} together, but asked is {asked:g}"
        if asked > known.rows:
            return f"asked is {asked:g}, and {known.describe_limit('rows')}"
        return None


# -- test scores ----------------------------------------------------------------------------------


def _find_other_tests(parts: Parts, known: SenderFacts) -> str | None:
    """Explain why a site cannot have this number of test examples, or return None."""
    rows = float(parts["rows"])
    tests = known.noted.get(TESTS, rows)
    if known.is_total or rows == tests:
        return None
    return f"rows is {rows:g}, but the site has {tests:g} test examples"


@final
@dataclass(frozen=True)
class Hits(Composite):
    """Test examples and correct predictions, in total and by class.

    measurements: those whose sums are sent beside them.
    """

    measurements: Measurements = ()

    def fields(self, sizes: Mapping[str, int]) -> dict[str, Kind]:
        fields: dict[str, Kind] = {
            "rows": Count(of="rows"),
            "hits": Count(),
            "class_rows": Count("classes"),
            "class_hits": Count("classes"),
        }
        return _add_sums(fields, self.measurements)

    def find_fault(self, parts: Parts, known: SenderFacts) -> str | None:
        why = _find_other_tests(parts, known)
        if why is not None:
            return why
        for few, many in (("hits", "rows"), ("class_hits", "class_rows")):
            if bool((parts[few] > parts[many] + known.room).any()):
                return f"{few} is {_describe(parts[few])}, and {many} is {_describe(parts[many])}"
        for by_class, in_all in (("class_rows", "rows"), ("class_hits", "hits")):
            together = float(parts[by_class].sum())
            limit = float(parts[in_all])
            if abs(together - limit) > known.room * len(parts[by_class]):
                return f"{by_class} is {together:g} together, but {in_all} is {limit:g}"
        return _find_impossible_sums(self.measurements, parts, known)


@final
@dataclass(frozen=True)
class LabelHits(Composite):
    """Test examples, and known and right answers to each of several labels.

    n_labels: their number.  measurements: those whose sums are sent beside them.
    """

    n_labels: int
    measurements: Measurements = ()

    def fields(self, sizes: Mapping[str, int]) -> dict[str, Kind]:
        fields: dict[str, Kind] = {
            "rows": Count(of="rows"),
            "label_rows": Count(self.n_labels),
            "label_hits": Count(self.n_labels),
        }
        return _add_sums(fields, self.measurements)

    def find_fault(self, parts: Parts, known: SenderFacts) -> str | None:
        why = _find_other_tests(parts, known)
        if why is not None:
            return why
        for part, whole in (("label_hits", "label_rows"), ("label_rows", "rows")):
            if bool((parts[part] > parts[whole] + known.room).any()):
                return (
                    f"{part} is {_describe(parts[part])}, and {whole} is "
                    f"{_describe(parts[whole])}"
                )
        return _find_impossible_sums(self.measurements, parts, known)


@final
@dataclass(frozen=True)
class SquaredErrors(Composite):
    """Number of test examples and the sum of squared errors.

    measurements: those whose sums are sent beside them.
    """

    measurements: Measurements = ()

    def fields(self, sizes: Mapping[str, int]) -> dict[str, Kind]:
        squares = NonNegative(is_wide=True)
        fields: dict[str, Kind] = {"rows": Count(of="rows"), "squares": squares}
        return _add_sums(fields, self.measurements)

    def find_fault(self, parts: Parts, known: SenderFacts) -> str | None:
        why = _find_other_tests(parts, known)
        return why or _find_impossible_sums(self.measurements, parts, known)


def _add_sums(fields: dict[str, Kind], measurements: Measurements) -> dict[str, Kind]:
    """Return the fields with those of the measurements."""
    for measurement in measurements:
        fields |= measurement.sums
    return fields


def _find_impossible_sums(
    measurements: Measurements, parts: Parts, known: SenderFacts
) -> str | None:
    """Explain which sums are impossible beside the test counts, or return None."""
    for measurement in measurements:
        why = measurement.find_fault(parts, known)
        if why is not None:
            return why
    return None


def _describe(values: Tensor) -> str:
    """Return a few numbers in words."""
    return f"{values.flatten()[:8].tolist()!s:.80}"


# -- arguments ------------------------------------------------------------------------------------


@final
@dataclass(frozen=True)
class Deadline(Kind):
    """A time of day in UTC, or None, that every time zone can display."""

    def find_wrong_form(
        self, name: str, value: object, sizes: dict[str, int]
    ) -> str | None:
        if value is None or _is_time(value):
            return None
        return f"{name} is {value!r:.60}, which is not a time"

    def find_fault(self, name: str, value: object, known: SenderFacts) -> str | None:
        return None

    def describe(self) -> str:
        return "a time, or nothing"


def _is_time(value: object) -> bool:
    if not isinstance(value, str) or DEADLINE.fullmatch(value) is None:
        return False
    try:
        return datetime.fromisoformat(value).year in YEARS
    except ValueError:
        return False
