"""Query computations on a device stay on it and agree with the CPU.

PyTorch's "meta" has no values but, like a GPU, rejects tensors on other devices.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from fallow.core.products import block_rows, has_device, taking_products_on, to_device
from fallow.core.streams import stream
from fallow.engine.device import SelectionDevice, ignore_message
from fallow.engine.placement import DeviceFailed, Placement
from fallow.strategies.acs_fw import frank_wolfe
from fallow.strategies.lcmd import nearest
from fallow.strategies.parts.bundles import nearest_center
from fallow.strategies.parts.density import typicality
from fallow.strategies.parts.kcenter import FeatureVectors, Gradients, k_center
from fallow.strategies.parts.kmeans import _average, cluster_rows, k_means_pp
from fallow.strategies.parts.neighbors import most_similar
from tests.engine.jobs import DEVICE

META = torch.device("meta")
COMES_BACK = "Cannot copy out of meta tensor"


def rows(n: int = 40, d: int = 5, *, seed: int = 0) -> Tensor:
    return torch.randn(n, d, generator=stream(seed, "rows"), dtype=torch.float64)


def gradients() -> Gradients:
    return Gradients.of(rows(d=3, seed=1), rows())


def draw() -> torch.Generator:
    return stream(0, "draws")


PRODUCTS: dict[str, Callable[[], Tensor]] = {
    "core-set": lambda: k_center(FeatureVectors.of(rows()), 5, first=0),
    "core-set, labeled": lambda: FeatureVectors.of(rows()).nearest(
        FeatureVectors.of(rows(7, seed=2))
    ),
    "gradients, labeled": lambda: gradients().nearest(gradients().at(torch.arange(6))),
    "gradients": lambda: k_center(gradients(), 5, first=0),
    "badge": lambda: k_means_pp(gradients().at(torch.arange(39, -1, -1)), 5, draw()),
    "lcmd": lambda: nearest(FeatureVectors.of(rows()), FeatureVectors.of(rows(7, seed=2)))[
        1
    ],
    "frank-wolfe": lambda: frank_wolfe(rows(), rows(seed=3), 5),
    "typicality": lambda: typicality(rows(), 3),
    "neighbors": lambda: most_similar(rows(), 4, rows(7, seed=2))[1],
    "many neighbors": lambda: most_similar(rows(200), 60)[1],
    "centers": lambda: nearest_center(rows(), rows(7, seed=2)),
    "k-means": lambda: cluster_rows(rows(), 6, draw()),
}


@pytest.fixture(autouse=True)
def few_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lower the number of examples from which the device is used."""
    monkeypatch.setattr("fallow.strategies.parts.kmeans.LARGE", 1)


@pytest.mark.parametrize("compute", PRODUCTS.values(), ids=PRODUCTS)
def test_products_are_taken_on_the_device(compute: Callable[[], Tensor]) -> None:
    with taking_products_on(META), pytest.raises(NotImplementedError, match=COMES_BACK):
        compute()


@pytest.mark.parametrize("compute", PRODUCTS.values(), ids=PRODUCTS)
def test_they_come_to_the_same_there_and_come_back(compute: Callable[[], Tensor]) -> None:
    wanted = compute()
    ours = SelectionDevice(Placement.open(DEVICE), ignore_message, free=lambda: None)
    result = ours.run(compute)
    assert result.device == torch.device("cpu")
    torch.testing.assert_close(result, wanted, rtol=0, atol=1e-12)


@pytest.mark.parametrize("compute", PRODUCTS.values(), ids=PRODUCTS)
def test_small_blocks_come_to_the_same(
    compute: Callable[[], Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = compute()
    monkeypatch.setattr("fallow.core.products.CELLS", 30)
    with taking_products_on(torch.device("cpu")):
        assert block_rows(1024, 7) == 4
        torch.testing.assert_close(compute(), wanted, rtol=0, atol=1e-12)


@pytest.mark.parametrize("k", [3, 40, 170])
def test_steps_of_k_means_are_those_of_the_library(k: int) -> None:
    places = rows(40, 8, seed=4).repeat(5, 1)
    x = places + 0.3 * rows(200, 8, seed=5)
    wanted = cluster_rows(x, k, draw())
    with taking_products_on(torch.device("cpu")):
        assert torch.equal(cluster_rows(x, k, draw()), wanted)


def test_a_cluster_that_lost_all_rows_begins_anew_at_a_far_one() -> None:
    x = torch.tensor([[0.0], [1.0], [9.0]])
    centers = torch.tensor([[0.5], [100.0]])
    assert _average(x, torch.tensor([0, 0, 0]), centers).tolist() == [[0.5], [9.0]]


def test_double_precision_stays_on_the_processor_where_a_device_has_none() -> None:
    with taking_products_on(torch.device("mps")):
        assert to_device(rows()).device == torch.device("cpu")


# -- memory and failing devices --------------------------------------------------------


class Wanting:
    """Client function that always requests an exabyte of device memory."""

    def __init__(self, times: int) -> None:
        self.times = times
        self.places: list[bool] = []

    def __call__(self) -> int:
        self.places.append(has_device())
        if has_device() and self.times:
            self.times -= 1
            torch.empty(2**60, dtype=torch.uint8)
        return 7


def run(site_function: Callable[[], int]) -> tuple[SelectionDevice, list[str]]:
    notes: list[str] = []
    ours = SelectionDevice(Placement(), notes.append, lambda: notes.append("gave back"))
    assert ours.run(site_function) == 7
    return ours, notes


def test_where_memory_is_short_it_is_tried_again_without_the_rows_of_training() -> None:
    wanting = Wanting(times=1)
    ours, output = run(wanting)
    assert wanting.places == [True, True]
    assert output == ["gave back"]
    assert ours.is_used


def test_where_that_is_not_enough_the_processor_goes_on() -> None:
    wanting = Wanting(times=9)
    ours, notes = run(wanting)
    assert wanting.places == [True, True, False]
    assert notes[:2] == ["gave back", "gave back"]
    assert notes[2] == (
        "device cpu has too little memory to compare the examples of a query: the CPU is used from "
        "now on, which takes longer and has the same result"
    )
    assert ours.run(wanting) == 7
    assert wanting.places[3:] == [False]
    assert len(notes) == 3


def test_a_device_that_fails_ends_the_run_with_the_way_to_go_on() -> None:
    def fail() -> int:
        raise torch.AcceleratorError("CUDA error: unspecified launch failure\nCompile with")

    with pytest.raises(DeviceFailed, match=r"failed while it chose rows \(CUDA error"):
        run(fail)


def test_a_mistake_of_a_strategy_is_left_as_it_is() -> None:
    def fail() -> int:
        raise RuntimeError("shapes differ")

    with pytest.raises(RuntimeError, match=r"^shapes differ$"):
        run(fail)
    assert not has_device()
