"""Declared sensitivities of released counts are correct and tight.

By exhaustive search over all labels of a few examples and all neighbors of each.
Neighboring sites differ in one example, in its label only or also in its features.
"""

from __future__ import annotations

import ast
import inspect
import itertools
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, get_type_hints

import pytest
import torch

import fallow
import fallow_papers
from fallow import strategies, training
from fallow.core.contract import Contract
from fallow.core.model_vectors import Layout
from fallow.core.view import Release
from fallow.experiment.steps import hold_back, is_stratified
from fallow.models.dense import Linear
from fallow.privacy.settings import Privacy
from fallow.settings.config import ExperimentConfig
from fallow.sites import LocalSite, RunComponents
from fallow.sites.store import Label, MemoryStore
from fallow.sites.view import SiteView
from fallow.training import FedAvg, personal
from fallow_papers.ahfal import codes

SOURCES = (Path(fallow.__file__).parent, Path(fallow_papers.__file__).parent)
ROOMS = (strategies, training, personal, codes)
CLASSES, POOL = 3, 2
MODEL = Linear((2,), CLASSES).to(torch.float64)
LAYOUT = Layout.of(MODEL)
STATE = {
    "w": torch.linspace(-1, 1, LAYOUT.d, dtype=torch.float64),
    "stats": torch.zeros(0, dtype=torch.float64),
}
SLACK = 1e-9
"""Rounding of sums of floating-point numbers, in the comparison of norms."""
NOISY: dict[str, dict[str, Any]] = {"ClosedForm": {"delta": 1e-5}}
"""The fields by which a method releases anything at all."""


def build_noisy(method: Any) -> Any:
    return method(**NOISY.get(method.__name__, {}))


def distance(one: Release, other: Release) -> float:
    """Return the distance of two releases: L2 for Gaussian noise, else L1."""
    away = one.counts - other.counts
    return float(away.norm() if one.delta else away.abs().sum())


def methods() -> list[type]:
    """Return all algorithms that a study can name."""
    classes = [getattr(room, name) for room in ROOMS for name in room.__all__]
    return [
        item for item in classes if isinstance(getattr(item, "contract", None), Contract)
    ]


def releasing() -> list[tuple[type, str]]:
    """Return every client function annotated to return `Release`, with its algorithm."""
    return [
        (method, function)
        for method in methods()
        for function in method.contract.disclosures  # type: ignore[attr-defined]
        if Release in _types_returned(getattr(method, function))
    ]


def _types_returned(function: Callable[..., Any]) -> tuple[Any, ...]:
    value = get_type_hints(function).get("return")
    return (value, *getattr(value, "__args__", ()))


RELEASING = releasing()
NAMES = [f"{method.__name__}.{function}" for method, function in RELEASING]


# -- small sites -----------------------------------------------------------------------


def small_site(
    method: Any,
    purchases: Sequence[Sequence[float]],
    *,
    validation: float = 0.0,
    withdrawn: Sequence[int] = (),
    weights: Sequence[float] | None = None,
    corrected: dict[int, float] | None = None,
    features: dict[int, float] | None = None,
    fresh_first: bool = False,
    epsilon: float | None = 1.0,
) -> LocalSite:
    """Return a site that labeled examples in several cycles, split as in a run.

    Some examples were withdrawn, some labels corrected, and some have other ``features``.
    """
    privacy = Privacy(epsilon=epsilon)
    config = ExperimentConfig("small", validation=validation, privacy=privacy)
    n = sum(map(len, purchases))
    x = torch.arange(float(n + POOL)).double().unsqueeze(1).repeat(1, 2)
    for row, value in (features or {}).items():
        x[row] = value
    methods: Any = {"query": method, "training": FedAvg()}  # only this is requested here
    parts = RunComponents(
        MODEL,
        LAYOUT,
        methods,
        CLASSES,
        0,
        lambda generator: {},
        hidden={"a": torch.zeros(n + POOL, dtype=torch.int64)},
        privacy=privacy,
    )
    site = LocalSite("a", x, parts, MemoryStore())
    row = 0
    for turn, purchase in enumerate(purchases):
        labels = []
        for value in purchase:
            weight = 1.0 if weights is None else weights[row]
            labels.append(Label(row, value, turn - 1, weight))
            row += 1
        site.buy(hold_back(labels, validation, is_stratified(config, CLASSES), turn))
    labels = site.store.load_labels("a")
    if corrected:  # keeps all but its value, as in a site's ledger
        site.reread([e._replace(value=corrected.get(e.row, e.value)) for e in labels])
    if fresh_first:
        newest = len(purchases) - 2
        site.is_validation[[label.row for label in labels if label.cycle == newest]] = True
    site.leave(withdrawn)
    for name in ("local", "global"):
        site.memory[name] = STATE
    return site


def released(site: LocalSite, function: str) -> Release:
    method = site.method("query")
    view = SiteView(site, 0, method.contract.simulator_only)
    releases = getattr(method, function)(view)
    assert isinstance(releases, Release)
    return releases


def shapes() -> Iterator[tuple[str, dict[str, Any], tuple[int, ...]]]:
    """Yield histories of a site: events, and the number of labels per cycle."""
    yield "plain", {}, (3,)
    yield "two purchases", {}, (2, 2)
    for share in (0.34, 0.5, 0.8):
        yield f"validation {share}", {"validation": share}, (4,)
    yield "validation, two purchases", {"validation": 0.5}, (2, 2)
    yield "fresh labels validate", {"validation": 0.5, "fresh_first": True}, (2, 2)
    yield "withdrawn", {"validation": 0.5, "withdrawn": (1,)}, (4,)
    yield "weights", {"validation": 0.5, "weights": (0.1, 7.0, 3.0, 0.5)}, (4,)
    yield "corrected", {"validation": 0.5, "corrected": {0: 2.0, 1: 1.0}}, (4,)


SHAPES = [(settings, sizes) for _, settings, sizes in shapes()]


def list_labelings(sizes: tuple[int, ...]) -> Iterator[tuple[tuple[float, ...], ...]]:
    """List all labels of cycles of these sizes."""
    for values in itertools.product(map(float, range(CLASSES)), repeat=sum(sizes)):
        ends = list(itertools.accumulate(sizes, initial=0))
        yield tuple(values[a:b] for a, b in itertools.pairwise(ends))


def neighbors(
    purchases: tuple[tuple[float, ...], ...],
) -> Iterator[tuple[tuple[float, ...], ...]]:
    """Yield each pair that differs in one label, with the larger label second."""
    for turn, values in enumerate(purchases):
        for at, value in enumerate(values):
            for other in map(float, range(int(value) + 1, CLASSES)):
                changed = (*values[:at], other, *values[at + 1 :])
                yield (*purchases[:turn], changed, *purchases[turn + 1 :])


def largest_change(releases_by_labels: dict[Any, Release]) -> float:
    """Return the largest distance over all neighbors."""
    return max(
        distance(releases_by_labels[one], releases_by_labels[other])
        for one in releases_by_labels
        for other in neighbors(one)
    )


# -- what is declared ------------------------------------------------------------------


def test_the_methods_that_release_counts_are_found() -> None:
    assert set(NAMES) >= {
        "AHFAL.share",
        "RatioAHFAL.share",
        "OracleHistogram.histogram",
        "ClosedForm.noisy_totals",
    }


def test_nothing_builds_a_release_but_a_verb_that_says_so() -> None:
    """Check the annotation, without which a client function would be missed here."""
    known = {f"{method.__name__}.{function}" for method, function in RELEASING}
    outcome = set()
    for path in sorted(path for folder in SOURCES for path in folder.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        if "Release(" not in text:
            continue
        tree = ast.parse(text)
        calls = [
            node
            for node in ast.walk(tree)
            if isinstance(node, ast.Call) and _builds_release(node)
        ]
        inside: dict[int, str] = {}
        for outer in ast.walk(tree):
            if not isinstance(outer, ast.ClassDef):
                continue
            for function in outer.body:
                if isinstance(function, ast.FunctionDef):
                    inside |= {
                        id(e): f"{outer.name}.{function.name}" for e in ast.walk(function)
                    }
        outcome |= {inside.get(id(call), f"{path}:{call.lineno}") for call in calls}
    assert outcome == known


def _builds_release(call: ast.Call) -> bool:
    return isinstance(call.func, ast.Name) and call.func.id == "Release"


@pytest.mark.parametrize(("method", "function"), RELEASING, ids=NAMES)
def test_a_verb_that_releases_counts_is_asked_for_totals_or_answers_alone(
    method: Any, function: str
) -> None:
    """Check that no noise-free copy is kept at a site for later client functions."""
    operations = {item.name: item.operation for item in method.contract.functions}
    assert operations[function] in ("sum", "each")
    parameters = [*inspect.signature(getattr(method, function)).parameters][2:]
    assert not parameters, "add arguments of this client function to the search"


@pytest.mark.parametrize(("settings", "sizes"), SHAPES, ids=[name for name, *_ in shapes()])
@pytest.mark.parametrize(("method", "function"), RELEASING, ids=NAMES)
def test_one_label_changes_counts_by_no_more_than_is_declared(
    method: Any, function: str, settings: dict[str, Any], sizes: tuple[int, ...]
) -> None:
    releases = {
        labels: released(small_site(build_noisy(method), labels, **settings), function)
        for labels in list_labelings(sizes)
    }
    declared = {release.sensitivity for release in releases.values()}
    assert len(declared) == 1, "the sensitivity itself would tell of the labels"
    change = largest_change(releases)
    assert 0 < change <= declared.pop() + SLACK


@pytest.mark.parametrize(("method", "function"), RELEASING, ids=NAMES)
def test_one_row_changes_counts_by_no_more_than_is_declared(
    method: Any, function: str
) -> None:
    """Check neighbors that differ in features and label of one example."""
    details: dict[str, Any] = {"validation": 0.5}
    for (labels,) in list_labelings((3,)):
        one = released(small_site(build_noisy(method), [labels], **details), function)
        for at, value in itertools.product(range(3), range(CLASSES)):
            changed = [(*labels[:at], float(value), *labels[at + 1 :])]
            features = {at: 9.0}
            other = released(
                small_site(build_noisy(method), changed, features=features, **details),
                function,
            )
            assert distance(one, other) <= one.sensitivity + SLACK


@pytest.mark.parametrize("epsilon", [None, 1.0])
@pytest.mark.parametrize(("method", "function"), RELEASING, ids=NAMES)
def test_what_follows_the_noise_sees_nothing_but_noisy_counts(
    method: Any, function: str, epsilon: float | None
) -> None:
    noisy = [torch.tensor(row).double() for row in ([2.5, -1, 4], [0, 0, 0], [-1, -2, -3])]
    sent: list[list[Any]] = []
    for (labels,) in list_labelings((3,)):
        site = small_site(build_noisy(method), [labels], epsilon=epsilon)
        release = released(site, function)
        posts = (release.post, release.post_noisy or release.post)
        sent.append([post(counts) for post in posts for counts in noisy])
    for other in sent[1:]:
        for one, another in zip(sent[0], other, strict=True):
            assert one.keys() == another.keys()
            for name in one:
                sent_by_both = map(torch.as_tensor, (one[name], another[name]))
                assert torch.equal(*sent_by_both)


@pytest.mark.long
@pytest.mark.parametrize(("method", "function"), RELEASING, ids=NAMES)
def test_releases_before_and_after_a_correction_add_up(method: Any, function: str) -> None:
    """Check releases before and after a correction.

    An example has a label first and another one after a correction; its neighbor has
    others. Each release changes by no more than is declared, so both together cost twice
    its epsilon.
    """
    settings: dict[str, Any] = {"validation": 0.5}
    counts: dict[Any, list[Release]] = {}
    sensitivity = 0.0
    for (labels,) in list_labelings((4,)):
        for second in map(float, range(CLASSES)):
            before = released(
                small_site(build_noisy(method), [labels], **settings), function
            )
            after = small_site(
                build_noisy(method), [labels], corrected={2: second}, **settings
            )
            counts[labels, second] = [before, released(after, function)]
            sensitivity = before.sensitivity
    for (labels, _), history in counts.items():
        for first, other in itertools.product(map(float, range(CLASSES)), repeat=2):
            changed = (*labels[:2], first, *labels[3:])
            changes = [
                distance(a, b) for a, b in zip(history, counts[changed, other], strict=True)
            ]
            assert max(changes) <= sensitivity + SLACK


# -- labels reserved for validation ----------------------------------------------------


@pytest.mark.parametrize("share", [0.1, 0.34, 0.5, 0.8])
@pytest.mark.parametrize("n", [1, 2, 3, 5])
def test_under_local_privacy_no_label_says_which_ones_are_held_back(
    share: float, n: int
) -> None:
    config = ExperimentConfig("small", validation=share, privacy=Privacy(epsilon=0.5))
    by_class = is_stratified(config, CLASSES)
    validation_rows = {
        tuple(
            label.is_validation
            for label in hold_back(
                [Label(row, y, 0) for row, y in enumerate(values)], share, by_class, 3
            )
        )
        for (values,) in list_labelings((n,))
    }
    assert len(validation_rows) == 1


def test_the_split_that_was_once_measured_is_as_it_should_be() -> None:
    """Check a past failure: one label moved six counts, [3, 3, 1] became [6, 1, 0]."""
    labels = (1.0, 1, 0, 0, 2, 2, 0, 1, 0, 1, 0, 0, 0, 1)
    changed = (*labels[:5], 0.0, *labels[6:])
    one, other = (
        small_site(strategies.AHFAL(), [values], validation=0.5)
        for values in (labels, changed)
    )
    assert float((one.counts - other.counts).abs().sum()) <= 2
    assert torch.equal(one.labeled, other.labeled)


def test_without_noise_labels_are_held_back_by_class_as_before() -> None:
    assert is_stratified(ExperimentConfig("small", validation=0.5), CLASSES)
    assert not is_stratified(ExperimentConfig("small", validation=0.5), 0)


@pytest.mark.parametrize("wrong", [0, -1, float("nan"), float("inf")])
def test_a_release_without_a_sensitivity_is_none(wrong: float) -> None:
    with pytest.raises(ValueError, match="above 0 and finite"):
        Release(torch.zeros(3), sensitivity=wrong)
