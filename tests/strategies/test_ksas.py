import pytest
import torch

from fallow.core.streams import stream
from fallow.strategies import KSAS
from fallow.strategies.ksas import discrepancy
from tests.simulations import Table, simulation, tables

LOCAL, GLOBAL = torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([[0.0, 1.0, 2.0]])


@pytest.mark.parametrize(
    ("counts", "expected"), [((8.0, 2.0, 0.0), 0.3204), ((1.0, 1.0, 1.0), 1.1504)]
)
def test_golden_scores(counts: tuple[float, ...], expected: float) -> None:  # G14
    assert float(discrepancy(LOCAL, GLOBAL, torch.tensor(counts))) == pytest.approx(
        expected, abs=5e-5
    )


def test_the_score_is_finite_for_any_counts() -> None:
    draw = stream(0, "ksas")
    for _ in range(50):
        local, globe = (20 * torch.randn(4, 6, generator=draw) for _ in range(2))
        counts = torch.randint(0, 3, (6,), generator=draw).double()
        assert bool(torch.isfinite(discrepancy(local, globe, counts)).all())


def test_it_is_the_symmetric_divergence_of_the_definition() -> None:
    counts = torch.tensor([3.0, 1.0, 6.0])
    a = (LOCAL + counts.log()).softmax(1).double()
    b = (GLOBAL + counts.log()).softmax(1).double()
    kl = torch.nn.functional.kl_div
    both = kl(a.log(), b, reduction="sum") + kl(b.log(), a, reduction="sum")
    assert float(discrepancy(LOCAL, GLOBAL, counts)) == pytest.approx(
        float(both) / 2, rel=1e-5
    )


def test_models_that_agree_and_sites_with_one_class_score_zero() -> None:
    assert float(discrepancy(LOCAL, LOCAL, torch.ones(3))) == 0
    assert float(discrepancy(LOCAL, GLOBAL, torch.tensor([0.0, 5.0, 0.0]))) == 0


@pytest.mark.parametrize("labels", [(), (1, 1), (0, 1, 2, 2)])
def test_rows_that_are_not_finite_come_last(labels: tuple[int, ...]) -> None:
    site = tables()["a"]
    local = site.local.clone()
    local[2, 0], local[5, 1] = torch.nan, torch.inf
    selected = simulation({"a": Table(local, site.common, labels)}, KSAS()).selected(12)[
        "a"
    ]
    assert sorted(selected) == list(range(12)) and set(selected[-2:]) == {2, 5}


def test_predictions_that_are_all_nan_are_an_error_that_says_so() -> None:
    nan = torch.full((4, 2), torch.nan, dtype=torch.float64)
    with pytest.raises(RuntimeError, match="all 4 scores are NaN or infinite"):
        simulation({"a": Table(nan, nan, [0])}, KSAS()).selected(2)


def test_a_site_without_labels_is_not_tilted() -> None:
    none = discrepancy(LOCAL, GLOBAL, torch.zeros(3))
    assert float(none) == pytest.approx(1.1504, abs=5e-5)
