import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from fallow.core.streams import stream
from fallow.core.training_config import TrainingConfig, TrainingStage
from fallow.experiment.event_log import EventLog
from fallow.experiment.run import ExperimentRun
from fallow.experiment.simulation import build_environment
from fallow.settings.config import ExperimentConfig
from fallow.settings.spec import Spec
from fallow.settings.variants import variant
from fallow.sites.view import SiteView
from fallow.strategies import FairFAL
from fallow.strategies.fairfal import difference, mean_prediction, quotas
from fallow.strategies.parts.kcenter import Gradients
from fallow.strategies.parts.kmeans import residuals
from fallow.study.study import run_one
from fallow.study.study_run import Setup, StudyRun
from tests.experiment.crash import KILLED, WELL, exchanges, load_outcome, points, tiny, work
from tests.simulations import Table, simulation, tables


@pytest.mark.parametrize(
    ("n", "sizes", "expected"),
    [
        (10, (50, 30, 0, 2), (4, 4, 0, 2)),
        (85, (500, 200, 100, 40, 5, 3, 1, 0, 0, 0), (19, 19, 19, 19, 5, 3, 1, 0, 0, 0)),
        (0, (3, 3), (0, 0)),
        (9, (1, 2), (1, 2)),
        (5, (10, 20, 30), (1, 2, 2)),  # the remainder goes to the largest classes
    ],
)
def test_golden_quotas(
    n: int, sizes: tuple[int, ...], expected: tuple[int, ...]
) -> None:  # G10
    assert quotas(n, torch.tensor(sizes)).tolist() == list(expected)


def test_quotas_fill_the_budget_within_the_buckets() -> None:
    draw = stream(0, "quotas")
    for _ in range(200):
        sizes = torch.randint(0, 12, (6,), generator=draw)
        n = int(torch.randint(0, 50, (1,), generator=draw))
        quota = quotas(n, sizes)
        assert int(quota.sum()) == min(n, int(sizes.sum()))
        assert bool((quota <= sizes).all())


def test_golden_difference() -> None:  # G13: d = 0.194444, s = 1 - (d + 0.4) / 2 = 0.702778
    d = difference(torch.tensor([0.5, 0.3, 0.2]), torch.tensor([0.3, 0.3, 0.4]))
    assert d == pytest.approx(0.194444, abs=1e-6)
    assert 1 - (d + 0.4) / 2 == pytest.approx(0.702778, abs=1e-6)
    assert difference(torch.tensor([1.0, 0.0]), torch.tensor([0.0, 0.0])) == 0.5


def test_golden_choice() -> None:  # G13: the model used for the query
    site = tables()["a"]
    federation = simulation({"a": Table(site.local, site.common, [0, 1, 2])}, FairFAL())
    member = federation.members["a"]
    by_local, by_global = torch.tensor([0.3, 0.3, 0.4]), torch.tensor([0.5, 0.3, 0.2])
    member.x[member.labeled] = torch.cat([by_local, by_global]).log().double()
    memo = federation.query(2)
    assert memo["gamma"] == pytest.approx(0.4)
    assert FairFAL().choose_model(SiteView(member, 0), memo["gamma"]) == "local"
    assert memo["notes"] == pytest.approx({"gamma": 0.4, "global_below": 0.1})  # d is 0.19


def test_golden_gradient() -> None:  # G16
    p, z = torch.tensor([[0.6, 0.3, 0.1]]), torch.tensor([[1.0, 2.0]])
    whole = (p - torch.eye(3)[0]).T @ z
    assert float(whole.norm()) == pytest.approx(1.1402, abs=5e-5)
    half = Gradients.of(residuals(p), z).half_norms()
    assert float((2 * half).sqrt()) == pytest.approx(float(whole.norm()))


# -- the imbalance ---------------------------------------------------------------------


def test_the_imbalance_is_asked_once_and_then_kept_in_the_memo() -> None:
    federation = simulation(tables(), FairFAL())
    memo = federation.query(2)
    assert 0 < memo["gamma"] <= 1
    federation.strategy.query(federation.ask(cycle=1), dict.fromkeys("abc", 2), memo)
    asked = [
        row["exchanges"]
        for row in federation.shown.rows()
        if row["function"] == "imbalance"
    ]
    assert asked == [1]


@pytest.mark.long
def test_a_run_killed_in_its_fourth_cycle_goes_on_with_the_imbalance_of_the_first(
    tmp_path: Path,
) -> None:
    cell, training_config = StudyRun("fairfal", 0), TrainingConfig((TrainingStage(2),), 8)
    config = replace(
        tiny(tmp_path), cycles=4, rounds=2, local_training_config=training_config
    )
    run_one(Setup(config, tmp_path / "warm"), cell)  # a forked process needs no imports
    whole, killed = (Setup(config, tmp_path / name) for name in ("whole", "killed"))
    assert work(whole, cell) == WELL
    assert work(killed, cell, 7 * points(whole.out) // 10) == KILLED
    assert exchanges(killed.out)[-1].startswith("3/")
    assert work(killed, cell) == WELL
    assert load_outcome(killed, cell) == load_outcome(whole, cell)
    asked = [
        sum(k.startswith(f"{c}/query") for k in exchanges(killed.out)) for c in range(4)
    ]
    assert asked == [2, 1, 1, 1]
    noted = [
        row["notes"]["gamma"] for row in load_outcome(killed, cell).records if row["notes"]
    ]
    assert len(noted) >= 4 and len(set(noted)) == 1 and 0 < noted[0] <= 1


def test_the_imbalance_is_the_mean_over_sites_that_have_labels() -> None:
    sites = tables()
    alone = [simulation({n: t}, FairFAL()).query(1)["gamma"] for n, t in sites.items()]
    bare = {**sites, "z": Table(sites["a"].local, sites["a"].common)}
    assert simulation(bare, FairFAL()).query(1)["gamma"] == pytest.approx(sum(alone) / 3)


def test_a_class_without_labels_is_never_a_pseudo_label() -> None:
    site = tables(rows=30)["a"]
    site = Table(site.local, site.common, [0, 0, 2, 2, 2])
    federation = simulation({"a": site}, FairFAL())
    seen = FairFAL().pseudo_labels(SiteView(federation.members["a"], 0), "local")
    assert set(seen.tolist()) <= {0, 2}


def test_the_global_model_queries_where_both_agree_and_the_federation_is_imbalanced() -> (
    None
):
    site = tables(rows=30)["a"]
    federation = simulation({"a": Table(site.local, site.common, [0, 1, 2])}, FairFAL())
    member = federation.members["a"]
    member.remember("local", member.memory["global"])  # d = 0
    view = SiteView(member, 0)
    assert FairFAL().choose_model(view, gamma=0.49) == "global"  # s = 0.755
    assert FairFAL().choose_model(view, gamma=0.5) == "local"  # s = 0.75 is not above delta
    assert FairFAL(query_model="opposite").choose_model(view, gamma=0.49) == "local"


def test_the_switches_of_the_ablation_give_different_picks() -> None:
    sites = tables(rows=80, labels=12)
    variants = [
        FairFAL(query_model="local"),
        FairFAL(query_model="global"),
        FairFAL(query_model="local", prototypes="none"),
        FairFAL(query_model="local", kappa=1.0),
        FairFAL(query_model="local", kappa=2.0),
    ]
    selected = [
        str({n: sorted(r) for n, r in simulation(sites, v).selected(10).items()})
        for v in variants
    ]
    assert len(set(selected)) == len(variants)


def test_candidates_are_the_most_uncertain_of_each_pseudo_class() -> None:
    sites = tables(rows=60, labels=12)
    strategy = FairFAL(query_model="local", prototypes="none", kappa=1.0)
    selected = simulation(sites, strategy).selected(9)
    for name, rows in selected.items():
        p = sites[name].local.softmax(1)
        h: list[float] = torch.special.entr(p).sum(1).tolist()
        label = p.argmax(1)
        quota = quotas(9, torch.bincount(label, minlength=3))
        best = []
        for c in range(3):
            bucket = (label == c).nonzero().flatten().tolist()
            bucket.sort(key=h.__getitem__, reverse=True)
            best += bucket[: quota[c]]
        assert sorted(rows) == sorted(best)


# -- edges -----------------------------------------------------------------------------


def test_the_imbalance_is_not_frozen_before_anybody_has_labels() -> None:
    bare = {name: Table(t.local, t.common) for name, t in tables().items()}
    assert "gamma" not in simulation(bare, FairFAL()).query(1)


@pytest.mark.parametrize(
    ("logits", "labels", "gamma"),
    [
        ((0.0, -2000.0, 0.0), [0, 1], 0.0),  # never predicts class 1, which the site has
        ((0.0, -2000.0, -2000.0), [1], 1.0),  # a single class is balanced
        (
            (0.0, -2000.0, -2000.0),
            [1, 2],
            1.0,
        ),  # none of the site's classes: they are equal
    ],
)
def test_classes_that_are_never_predicted_leave_the_imbalance_a_number(
    logits: tuple[float, ...], labels: list[int], gamma: float
) -> None:
    site = tables()["a"]
    federation = simulation({"a": Table(site.local, site.common, labels)}, FairFAL())
    member = federation.members["a"]
    member.x[member.labeled, 3:] = torch.tensor(logits, dtype=torch.float64)
    assert federation.query(2)["gamma"] == gamma


EDGES = [
    FairFAL(),
    FairFAL(query_model="local"),
    FairFAL(query_model="global", prototypes="none"),
    FairFAL(query_model="local", gradients="global"),
]


@pytest.mark.parametrize("strategy", EDGES, ids=str)
@pytest.mark.parametrize("labels", [(), (1, 1), (0, 1, 2, 2)])
def test_rows_that_are_not_finite_come_last(
    strategy: FairFAL, labels: tuple[int, ...]
) -> None:
    site = tables()["a"]
    local = site.local.clone()
    local[2, 0], local[5, 1] = torch.nan, torch.inf
    for n in (4, 10, 11, 12):
        selected = simulation({"a": Table(local, site.common, labels)}, strategy).selected(
            n
        )["a"]
        assert len(set(selected)) == n and not {2, 5} & set(selected[:10])


@pytest.mark.parametrize("strategy", EDGES, ids=str)
def test_labeled_rows_that_are_not_finite_are_as_if_they_were_not_there(
    strategy: FairFAL,
) -> None:
    site = tables(rows=40)["a"]
    many = Table(site.local, site.common, [0, 0, 1, 1, 1])
    few, more = simulation({"a": many}, strategy), simulation({"a": many}, strategy)
    member = few.members["a"]
    member.x[member.labeled[1]] = torch.nan
    twin = more.members["a"]
    twin.x[twin.labeled[1]] = twin.x[twin.labeled[0]]  # class 0 has one example, used twice
    assert few.selected(9) == more.selected(9)


@pytest.mark.parametrize("strategy", EDGES, ids=str)
def test_predictions_that_are_all_nan_are_an_error_that_says_so(strategy: FairFAL) -> None:
    nan = torch.full((4, 3), torch.nan, dtype=torch.float64)
    with pytest.raises(RuntimeError, match="all 4 scores are NaN or infinite"):
        simulation({"a": Table(nan, nan, [0])}, strategy).selected(2)


def test_labeled_predictions_that_are_all_nan_are_an_error_that_says_so() -> None:
    federation = simulation({"a": tables()["a"]}, FairFAL())
    member = federation.members["a"]
    member.x[member.labeled] = torch.nan
    with pytest.raises(RuntimeError, match="all 8 labeled examples are NaN or infinite"):
        federation.query(2)


def test_kappa_times_quota_is_not_rounded_down_by_noise() -> None:
    bucket = torch.arange(300)
    assert 1.15 * 100 < 115  # in floating point
    assert FairFAL(kappa=1.15).candidates(bucket, 100).tolist() == list(range(115))
    assert FairFAL(kappa=1.5).candidates(bucket, 3).tolist() == [0, 1, 2, 3]
    assert len(FairFAL(kappa=math.inf).candidates(bucket, 100)) == 300
    assert len(FairFAL(kappa=1.0).candidates(bucket, 300)) == 300


@pytest.mark.parametrize(
    "wrong",
    [
        {"kappa": 0.5},
        {"kappa": math.nan},
        {"delta": math.nan},
        {"delta": -0.1},
        {"delta": 1.5},
    ],
)
def test_values_out_of_range_are_refused(wrong: dict[str, float]) -> None:
    (name,) = wrong
    with pytest.raises(ValueError, match=f"FairFAL's {name} is"):
        FairFAL(**wrong)  # type: ignore[arg-type]  # mypy: a float for any field


def test_without_anchors_the_most_uncertain_row_is_the_first_pick() -> None:
    site = tables(rows=40)["a"]
    federation = simulation({"a": Table(site.local, site.common)}, FairFAL())
    view = SiteView(federation.members["a"], 0)
    bucket = torch.tensor([31, 4, 9, 17, 25, 2, 0, 3])
    assert int(FairFAL().two_stage(view, bucket, 0, 2, 0.0)[0]) == 31


def test_every_class_weighs_the_same_in_a_mean_prediction() -> None:
    zero = torch.zeros(2, 2, dtype=torch.float64)
    member = simulation({"a": Table(zero, zero, [0, 0, 0, 1])}, FairFAL()).members["a"]
    p = torch.tensor([[0.9, 0.1], [0.6, 0.4], [0.6, 0.4], [0.2, 0.8]], dtype=torch.float64)
    member.x[member.labeled, 2:] = p.log()
    pi = mean_prediction(SiteView(member, 0), "global")
    assert pi.tolist() == pytest.approx([(0.7 + 0.2) / 2, (0.3 + 0.8) / 2])


def test_a_long_feature_moves_a_prototype_no_more_than_a_short_one() -> None:
    rows = torch.tensor([[1.0, 1.0]], dtype=torch.float64)
    member = simulation({"a": Table(rows, 0 * rows, [0, 0, 1])}, FairFAL()).members["a"]
    known = torch.tensor([[100.0, 0.0], [0.0, 1.0], [1.0, 0.5]], dtype=torch.float64)
    member.x[member.labeled] = torch.cat([known, 0 * known], 1)
    assert FairFAL().pseudo_labels(SiteView(member, 0), "global").tolist() == [0]


def test_a_bucket_is_covered_beginning_with_the_gradients_of_the_labeled_rows_of_its_class() -> (
    None
):
    n_other = 0  # seeds for which labels of all classes would lead elsewhere
    for seed in range(8):
        member = simulation(tables(seed, rows=40, labels=12), FairFAL()).members["a"]
        member.x[member.labeled] = torch.randn(
            12, 6, generator=stream(seed, "labeled")
        ).double()
        view = SiteView(member, 0)
        c = int(view.counts.argmax())
        bucket = torch.randperm(40, generator=stream(seed, "bucket"))
        rows, known = bucket[:12], view.labels == c
        p, z = view.logits("global")[rows].softmax(1), view.embed("global")[rows]
        points = gradients(p, z, p.argmax(1))
        p = view.logits("global", "labeled").softmax(1)
        labeled = gradients(p, view.embed("global", "labeled"), view.labels)
        expected = rows[cover(points, labeled[known], 3)].tolist()
        assert FairFAL().two_stage(view, bucket, c, 3, 0.0).tolist() == expected
        n_other += rows[cover(points, labeled, 3)].tolist() != expected
    assert n_other > 0


def cover(points: Tensor, centers: Tensor, n: int) -> list[int]:
    """Return the positions of points that are farthest from the centers and each other."""
    selected: list[int] = []
    for _ in range(n):
        far = torch.cdist(points, centers).amin(1)
        selected.append(int(far.argmax()))
        centers = torch.cat([centers, points[selected[-1]][None]])
    return selected


def gradients(p: Tensor, z: Tensor, y: Tensor) -> Tensor:
    """Compute (e_y - P) z explicitly.  (n, C), (n, d), (n,) -> (n, C d)."""
    return ((torch.eye(p.shape[1])[y] - p)[:, :, None] * z[:, None]).flatten(1)


def test_gradients_read_the_local_predictions_where_the_federation_is_balanced() -> None:
    site = tables(rows=80, labels=12)["a"]
    by = {}
    for gamma in (0.49, 0.5):
        for gradients in ("auto", "global"):
            strategy = FairFAL(query_model="local", gradients=gradients)
            view = SiteView(simulation({"a": site}, strategy).members["a"], 0)
            by[gamma, gradients] = strategy.select(view, 12, gamma).rows.tolist()
    assert by[0.49, "auto"] == by[0.49, "global"] == by[0.5, "global"] != by[0.5, "auto"]


def test_the_switch_of_the_gradients_is_a_field() -> None:
    site = tables(rows=80, labels=12)["a"]
    selected = {}
    for switch in (0.4, 0.5):
        strategy = FairFAL(query_model="local", gradient_switch=switch)
        view = SiteView(simulation({"a": site}, strategy).members["a"], 0)
        selected[switch] = strategy.select(view, 12, 0.45).rows.tolist()
    assert selected[0.4] != selected[0.5]
    with pytest.raises(ValueError, match="gradient_switch"):
        FairFAL(gradients="global", gradient_switch=0.4)


def test_local_prototypes_are_means_of_local_features() -> None:
    site = tables(rows=30, labels=6)["a"]
    strategy = FairFAL(prototypes="local")
    view = SiteView(simulation({"a": site}, strategy).members["a"], 0)
    z = torch.nn.functional.normalize(view.embed("local", "labeled"))
    means = [z[view.labels == c].mean(0) for c in torch.unique(view.labels)]
    similar = torch.nn.functional.cosine_similarity(
        view.embed("local")[:, None], torch.stack(means)[None], dim=2
    )
    expected = torch.unique(view.labels)[similar.argmax(1)]
    assert torch.equal(strategy.pseudo_labels(view, "local"), expected)


def test_local_and_global_prototypes_select_other_examples() -> None:
    config = ExperimentConfig(
        "tiny",
        data="digits",
        rows=120,
        test_rows=10,
        sites=2,
        model=Spec("mlp", {"hidden": [8]}),
        local_training_config=TrainingConfig((TrainingStage(2),), 8),
        rounds=1,
        initial=10,
        budget=8,
        cycles=1,
        score_rounds=1,
    )
    selected = []
    for prototypes in ("global", "local"):
        strategy = f"fairfal:query_model=global:kappa=1:prototypes={prototypes}"
        event_log = EventLog()
        simulation = build_environment(variant(config, strategy), 0, store=event_log)
        list(ExperimentRun(simulation, event_log).go())
        selected.append([site.labeled.tolist() for site in simulation.members.values()])
    assert selected[0] != selected[1]
