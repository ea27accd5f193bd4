import pytest
import torch

from fallow.core import stream
from fallow.queries import FairFAL
from fallow.queries.fairfal import difference, quotas
from fallow.runtimes.view import SiteView
from tests.worlds import Table, tables, world


@pytest.mark.parametrize(
    ("n", "sizes", "expected"),
    [
        (10, (50, 30, 0, 2), (4, 4, 0, 2)),
        (85, (500, 200, 100, 40, 5, 3, 1, 0, 0, 0), (19, 19, 19, 19, 5, 3, 1, 0, 0, 0)),
        (0, (3, 3), (0, 0)),
        (9, (1, 2), (1, 2)),
    ],
)
def test_golden_quotas(n, sizes, expected):  # G10
    assert quotas(n, torch.tensor(sizes)).tolist() == list(expected)


def test_quotas_fill_the_budget_within_the_buckets():
    draw = stream(0, "quotas")
    for _ in range(200):
        sizes = torch.randint(0, 12, (6,), generator=draw)
        n = int(torch.randint(0, 50, (1,), generator=draw))
        quota = quotas(n, sizes)
        assert int(quota.sum()) == min(n, int(sizes.sum()))
        assert bool((quota <= sizes).all())


def test_golden_difference():  # G13: d = 0.194444, s = 1 - (d + 0.4) / 2 = 0.702778
    d = difference(torch.tensor([0.5, 0.3, 0.2]), torch.tensor([0.3, 0.3, 0.4]))
    assert d == pytest.approx(0.194444, abs=1e-6)
    assert 1 - (d + 0.4) / 2 == pytest.approx(0.702778, abs=1e-6)
    assert difference(torch.tensor([1.0, 0.0]), torch.tensor([0.0, 0.0])) == 0.5


def test_the_imbalance_is_asked_once_and_then_kept_in_the_memo():
    federation = world(tables(), FairFAL())
    memo = federation.query(2)
    assert 0 < memo["gamma"] <= 1
    federation.strategy.query(federation.ask(cycle=1), dict.fromkeys("abc", 2), memo)
    asked = [row["exchanges"] for row in federation.shown.rows() if row["verb"] == "imbalance"]
    assert asked == [1]


def test_the_imbalance_is_the_mean_over_sites_that_have_labels():
    sites = tables()
    alone = [world({n: t}, FairFAL()).query(1)["gamma"] for n, t in sites.items()]
    bare = {**sites, "z": Table(sites["a"].local, sites["a"].common)}
    assert world(bare, FairFAL()).query(1)["gamma"] == pytest.approx(sum(alone) / 3)


def test_a_class_without_labels_is_never_a_pseudo_label():
    site = tables(rows=30)["a"]
    site = Table(site.local, site.common, [0, 0, 2, 2, 2])
    federation = world({"a": site}, FairFAL())
    seen = FairFAL().pseudo_labels(SiteView(federation.members["a"], 0), "local")
    assert set(seen.tolist()) <= {0, 2}


def test_the_global_model_queries_where_both_agree_and_classes_are_even():
    site = tables(rows=30)["a"]
    federation = world({"a": Table(site.local, site.common, [0, 1, 2])}, FairFAL())
    member = federation.members["a"]
    member.remember("local", member.memory["global"])  # d = 0
    view = SiteView(member, 0)
    assert FairFAL().chosen(view, gamma=0.49) == "global"  # s = 0.755
    assert FairFAL().chosen(view, gamma=0.5) == "local"  # s = 0.75 is not above delta
    assert FairFAL(query_model="opposite").chosen(view, gamma=0.49) == "local"


def test_the_switches_of_the_ablation_give_different_picks():
    sites = tables(rows=80, labels=12)
    variants = [
        FairFAL(query_model="local"),
        FairFAL(query_model="global"),
        FairFAL(query_model="local", prototypes=False),
        FairFAL(query_model="local", kappa=1.0),
        FairFAL(query_model="local", kappa=2.0),
    ]
    picks = [str({n: sorted(r) for n, r in world(sites, v).picks(10).items()}) for v in variants]
    assert len(set(picks)) == len(variants)


def test_candidates_are_the_most_uncertain_of_each_pseudo_class():
    sites = tables(rows=60, labels=12)
    strategy = FairFAL(query_model="local", prototypes=False, kappa=1.0)
    picks = world(sites, strategy).picks(9)
    for name, rows in picks.items():
        p = sites[name].local.softmax(1)
        h, label = torch.special.entr(p).sum(1), p.argmax(1)
        quota = quotas(9, torch.bincount(label, minlength=3))
        best = []
        for c in range(3):
            bucket = sorted((label == c).nonzero().flatten().tolist(), key=lambda r, h=h: -h[r])
            best += bucket[: quota[c]]
        assert sorted(rows) == sorted(best)
