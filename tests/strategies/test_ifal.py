import math
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from scipy.stats import wasserstein_distance
from torch import Tensor
from torch.nn.functional import cosine_similarity, cross_entropy, softmax
from torch.testing import assert_close

from fallow.core.disclosure import Disclosure
from fallow.core.exchange_key import ExchangeKey
from fallow.core.local import Batch
from fallow.core.methods import Methods
from fallow.core.model_vectors import Layout
from fallow.core.streams import stream
from fallow.core.training_config import TrainingStage
from fallow.core.view import View
from fallow.experiment.event_log import EventLog
from fallow.experiment.run import ExperimentRun
from fallow.experiment.simulation import build_environment
from fallow.models import build_model
from fallow.settings.config import with_settings
from fallow.sites import LocalSite, RunComponents
from fallow.sites.store import Label, MemoryStore
from fallow.sites.view import SiteView
from fallow.strategies import IFAL
from fallow.strategies.ifal import (
    central_rows,
    disagreement,
    distance,
    distillation_loss,
    finite,
    listing_classes,
    otsu,
)
from fallow.training import FedAvg
from tests.experiment.crash import tiny
from tests.simulations import Table, simulation, tables

C, FEATURES = 3, 4


def site(
    pool: int = 14,
    labels: Sequence[int] = (0, 1, 2, 1, 0),
    seed: int = 0,
    rows: Tensor | None = None,
) -> LocalSite:
    """Return a site with three models that have different features."""
    model = build_model("mlp", (FEATURES,), C, stream(seed, "mlp"), hidden=(8,)).double()
    layout = Layout.of(model)
    methods: Methods = {"query": IFAL(), "training": FedAvg(), "plain": FedAvg()}
    zero = {"w": torch.zeros(layout.d), "stats": torch.zeros(0)}
    parts = RunComponents(model, layout, methods, C, seed, lambda generator: zero)
    shape = (pool + len(labels), FEATURES)
    draw = stream(seed, "rows")
    x = torch.randn(shape, generator=draw, dtype=torch.float64) if rows is None else rows
    made = LocalSite("a", x, parts, MemoryStore())
    made.buy([Label(pool + i, y, -1) for i, y in enumerate(labels)])
    for name in ("global", "local", "kd"):
        other = build_model("mlp", (FEATURES,), C, stream(seed, name), hidden=(8,))
        made.remember(name, layout.flatten(other, torch.float64))
    return made


def seen(made: LocalSite) -> SiteView:
    return SiteView(made, 0)


# -- parts against their definitions ---------------------------------------------------


def test_the_distance_is_scipys_for_the_entries_of_two_distributions() -> None:
    draw = stream(0, "distance")
    a, b = (torch.randn(20, 5, generator=draw).double().softmax(1) for _ in range(2))
    plain = [
        wasserstein_distance(u, v) for u, v in zip(a.tolist(), b.tolist(), strict=True)
    ]
    assert_close(distance(a, b), torch.tensor(plain, dtype=torch.float64))


def test_a_permutation_of_the_classes_is_no_distance() -> None:  # I1
    p = torch.tensor([[0.7, 0.2, 0.1]])
    assert float(distance(p, p[:, [2, 0, 1]])) == 0


def test_disagreement_by_hand() -> None:
    a, b = torch.tensor([0.3, 0.0, 0.2]), torch.tensor([0.1, 0.0, 0.2])
    assert_close(
        disagreement(a, b), torch.tensor([0.3 / 0.10001 * 0.4, 0.0, 0.2 / 0.20001 * 0.4])
    )
    assert_close(disagreement(b, a), disagreement(a, b))
    assert float(disagreement(torch.tensor(0.1), torch.tensor(0.0))) == pytest.approx(
        1e3
    )  # finite


def between_groups(x: list[float], threshold: float) -> float:
    """Return the between-class variance of Otsu for a threshold."""
    low, high = [v for v in x if v <= threshold], [v for v in x if v > threshold]
    share = len(low) / len(x)
    gap = sum(low) / len(low) - sum(high) / len(high)
    return share * (1 - share) * gap**2


@pytest.mark.parametrize("seed", range(20))
def test_otsus_threshold_is_the_best_of_all_cuts(seed: int) -> None:
    draw = stream(seed, "otsu")
    x = (
        torch.rand(12, generator=draw).mul(6).round().double().exp()
    )  # far apart, and with ties
    values = sorted(set(x.tolist()))[:-1]
    best = max(between_groups(x.tolist(), v) for v in values)
    assert between_groups(x.tolist(), otsu(x)) == pytest.approx(best)
    assert otsu(x) in values


@pytest.mark.parametrize("x", [[], [3.0], [2.0, 2.0, 2.0]])
def test_where_all_values_are_equal_nothing_is_above_the_threshold(x: list[float]) -> None:
    assert otsu(torch.tensor(x)) == math.inf


def test_central_rows_are_the_members_nearest_to_the_means_of_their_clusters() -> None:
    x = torch.tensor([[0.0], [10.0], [1.0], [2.5], [11.0], [7.0]])
    cluster = torch.tensor([4, 2, 4, 4, 2, 0])  # an empty cluster has no examples
    assert central_rows(x, cluster).tolist() == [5, 1, 2]


def company_of(view: View, at: Tensor, model: str, labels_by: str, k: int) -> Tensor:
    """Count votes as defined in the paper, row by row, over all pairs."""
    pool, labeled = view.embed(model)[at], view.embed(model, "labeled")
    label = [*view.logits(labels_by)[at].argmax(1).tolist(), *view.labels.tolist()]
    votes = torch.ones(len(at), C, dtype=torch.float64)
    for i, row in enumerate(torch.cat([pool, labeled])):
        cosine = [float(cosine_similarity(row, other, dim=0)) for other in pool]
        others = [j for j in range(len(at)) if j != i]
        others.sort(key=cosine.__getitem__, reverse=True)
        for j in others[: min(k, len(at) - 1)]:
            votes[j, label[i]] += 1
    return votes / votes.sum(1, keepdim=True)


@pytest.mark.parametrize("k", [1, 3, 8])
def test_the_inconsistencies_are_those_of_the_definition(k: int) -> None:
    view, at = seen(site()), torch.arange(14)
    of = {m: company_of(view, at, m, "global", k) for m in ("global", "local", "kd")}
    ll, gl = distance(of["local"], of["kd"]), distance(of["global"], of["kd"])
    ratio = torch.maximum(gl / (ll + 1e-5), ll / (gl + 1e-5))
    own = company_of(view, at, "local", "local", k)
    inter, intra = IFAL(neighbors=k).inconsistencies(view, at)
    assert_close(inter, ratio * (ll + gl))
    assert_close(intra, distance(own, view.logits("local").softmax(1)))
    assert inter.isfinite().all() and intra.isfinite().all() and (inter > 0).any()


def test_votes_of_a_class_count_rows_that_list_a_row() -> None:
    near, label = torch.tensor([[1, 2], [0, 2], [1, 0], [2, 1]]), torch.tensor([0, 1, 1, 2])
    expected = torch.tensor([[1, 3, 1], [2, 2, 2], [2, 2, 2]]).double()  # 1 + votes
    assert_close(
        listing_classes(near, label, 3, 3), expected / expected.sum(1, keepdim=True)
    )


# -- selection -------------------------------------------------------------------------


class Fixed:
    """Replaces the inconsistencies of a site's examples by given values."""

    def __init__(self, inter: list[float], intra: list[float]) -> None:
        self.values = torch.tensor(inter).double(), torch.tensor(intra).double()

    def selected(self, view: View, n: int, monkeypatch: pytest.MonkeyPatch) -> list[int]:
        monkeypatch.setattr(IFAL, "inconsistencies", lambda *_: self.values)
        rows: list[int] = IFAL().select(view, n).rows.tolist()
        return rows


def test_the_picks_are_spread_over_the_candidates(monkeypatch: pytest.MonkeyPatch) -> None:
    # examples 0-7 are candidates in two clusters of directions; the best four are in one
    rows = torch.zeros(19, FEATURES, dtype=torch.float64)
    rows[:, 0], rows[4:8, 1] = 1.0, 9.0
    rows += 0.01 * torch.randn(rows.shape, generator=stream(0, "near"), dtype=torch.float64)
    view = seen(site(rows=rows))
    value = [9.0, 8.9, 8.8, 8.7, 8.0, 8.1, 8.2, 8.3, *[1.0] * 6]
    selected = Fixed(value, [1.0] * 14).selected(view, 2, monkeypatch)
    assert len(selected) == 2 and selected[0] < 4 <= selected[1] < 8


def test_too_few_candidates_are_sought_between_models_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    inter = [5.0, 5.1, 5.2, 5.3, *[1.0] * 10]
    intra = [9.0, 0.1, 0.1, 0.1, *[0.1] * 10]  # the product has one candidate
    selected = Fixed(inter, intra).selected(seen(site()), 4, monkeypatch)
    assert sorted(selected) == [0, 1, 2, 3]


def test_where_both_are_too_few_the_best_rows_are_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    inter, intra = [1.0] * 14, [float(i) for i in range(14)]
    assert Fixed(inter, intra).selected(seen(site()), 9, monkeypatch) == list(
        range(13, 4, -1)
    )


def test_clusters_that_are_empty_are_made_up_by_the_best_remaining_rows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # I5
    rows = torch.ones(19, FEATURES, dtype=torch.float64)  # all equal: one cluster
    value = [9.0, 8.0, 8.5, 8.8, *[1.0] * 10]
    selected = Fixed(value, [1.0] * 14).selected(seen(site(rows=rows)), 3, monkeypatch)
    assert (
        len(set(selected)) == 3
        and set(selected) <= {0, 1, 2, 3}
        and {0, 3} <= set(selected)
    )


@pytest.mark.parametrize("pool", [1, 2, 3])
def test_small_pools_are_answered(pool: int) -> None:  # I3
    for n in (1, pool):
        rows = IFAL().select(seen(site(pool)), n).rows.tolist()
        assert len(set(rows)) == n


@pytest.mark.parametrize("labels", [(), (1, 1), (0, 1, 2, 2)])
def test_rows_that_are_not_finite_come_last(labels: tuple[int, ...]) -> None:
    table = tables()["a"]
    local = table.local.clone()
    local[2, 0], local[5, 1] = torch.nan, torch.inf
    for n in (4, 10, 11, 12):
        selected = simulation(
            {"a": Table(local, table.common, labels)}, IFAL(epochs=1)
        ).selected(n)["a"]
        assert len(set(selected)) == n and not {2, 5} & set(selected[:10])


def test_labeled_rows_that_are_not_finite_vote_for_nobody() -> None:
    spoilt, plain = site(labels=(0, 1, 2, 1, 0)), site(labels=(0, 1, 2, 1, 0))
    spoilt.x[spoilt.labeled[1]] = torch.nan
    assert finite(seen(spoilt), "labeled").tolist() == [True, False, True, True, True]
    assert IFAL().inconsistencies(seen(spoilt), torch.arange(14))[0].isfinite().all()
    assert not finite(seen(spoilt), "pool").logical_not().any()
    assert finite(seen(plain), "labeled").all()


# -- the distilled model ---------------------------------------------------------------


def test_the_loss_of_the_distilled_model_is_that_of_the_definition() -> None:
    draw = stream(0, "taught")
    out, teacher = (
        3 * torch.randn(4, C, generator=draw, dtype=torch.float64) for _ in range(2)
    )
    y, weight = torch.tensor([0, 2, 1, 1]), torch.tensor([1.0, 2.0, 1.0, 0.0]).double()
    plain = 0.0
    for i in range(3):  # the last row is padding
        p, q = softmax(teacher[i] / 4, 0), softmax(out[i] / 4, 0)
        kl = float((p * (p.log() - q.log())).sum())
        plain += (
            float(weight[i])
            / 3
            * (0.1 * float(cross_entropy(out[i], y[i])) + 0.9 * 16 * kl)
        )
    batch = Batch(torch.empty(4, 0), y, weight, 0.1)
    assert float(distillation_loss(out, teacher, batch)) == pytest.approx(plain)
    two = Batch(torch.empty(2, 4, 0), y.expand(2, 4), weight.expand(2, 4), 0.1)
    stacked = distillation_loss(
        torch.stack([out, teacher]), torch.stack([teacher, out]), two
    )
    assert float(stacked[0]) == pytest.approx(plain) and stacked.shape == (2,)


def test_a_model_that_agrees_with_its_teacher_pays_for_labels_alone() -> None:
    out = torch.tensor([[2.0, 1.0, 0.0]])
    batch = Batch(torch.empty(1, 0), torch.tensor([1]), torch.ones(1), 0.1)
    loss = float(cross_entropy(out, batch.y))
    assert float(distillation_loss(out, out, batch)) == pytest.approx(0.1 * loss)


def made(folder: Path, strategy: str, executor: str) -> dict[str, LocalSite]:
    """Return a federation after its first phase and the query, before labeling."""
    config = with_settings(
        tiny(folder),
        {"strategy": strategy, "model": "mlp", "executor": executor, "dtype": "float64"},
    )
    event_log = EventLog()
    federation = build_environment(config, 0, event_log)
    run = ExperimentRun(federation, event_log)
    run.initial()
    state = run.train(0, None)["state"]
    ask = run._ask(ExchangeKey("query", "query"), "query", 0, Disclosure())
    ask.fit(None, "global", None, **state)
    federation.methods["query"].query(
        ask, federation.cap_budget(federation.budget_for(0.1)), {}
    )
    return federation.members


@pytest.mark.long
def test_each_site_distils_the_global_model_into_a_fresh_one(tmp_path: Path) -> None:
    few, many = (
        made(tmp_path, f"ifal:epochs={n}:patience=300", "stacked") for n in (1, 300)
    )
    gaps = {}
    for n, members in ((1, few), (300, many)):
        for name, member in members.items():
            view = SiteView(member, 0)
            p, q = ((view.logits(m, "labeled") / 4).softmax(1) for m in ("global", "kd"))
            gaps[n, name] = float((p * (p.log() - q.log())).sum(1).mean())
    assert all(0 < gaps[300, name] < gaps[1, name] / 2 for name in many), gaps


def test_executors_distil_the_same_model(tmp_path: Path) -> None:
    loop, stacked = (made(tmp_path, "ifal:epochs=6", kind) for kind in ("loop", "stacked"))
    for name in loop:
        one, other = loop[name].memory, stacked[name].memory
        assert_close(one["kd"]["w"], other["kd"]["w"])
        assert torch.equal(one["selected"]["rows"], other["selected"]["rows"])


def test_the_training_config_is_made_of_the_fields() -> None:
    training_config = IFAL(epochs=500, lr=0.001, patience=7, batch=32).training_config
    assert (
        training_config.stages == (TrainingStage(500),)
        and training_config.start == "scratch"
    )
    assert (
        training_config.optimizer.lr,
        training_config.patience,
        training_config.batch_size,
    ) == (0.001, 7, 32)


def test_no_neighbors_are_refused() -> None:
    with pytest.raises(ValueError, match="IFAL's neighbors is 0"):
        IFAL(neighbors=0)


def test_a_pool_of_too_many_pairs_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fallow.strategies.ifal.MOST_ROWS", 4)
    with pytest.raises(
        RuntimeError, match=r"site a has \d+ unlabeled examples, and IFAL compares all"
    ):
        simulation(tables(), IFAL(epochs=1)).selected(2)
