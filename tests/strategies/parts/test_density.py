import pytest
import torch
from torch.testing import assert_close

from fallow.core.streams import stream
from fallow.strategies.parts import density
from fallow.strategies.parts.density import typicality


@pytest.mark.parametrize("k", [1, 3, 20])
@pytest.mark.parametrize("chunk", [4, 1024])
def test_it_is_one_over_the_mean_distance_to_the_nearest_rows(
    k: int, chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(density, "CHUNK", chunk)
    x = 30 + torch.randn(13, 4, generator=stream(0, "rows"), dtype=torch.float64)
    plain = []
    for i in range(13):
        near = sorted(float((x[i] - x[j]).norm()) for j in range(13) if j != i)[:k]
        plain.append(1 / (sum(near) / len(near) + 1e-5))
    assert_close(typicality(x, k).float(), torch.tensor(plain))


def test_a_row_among_many_is_more_typical_than_one_far_away() -> None:
    x = torch.randn(60, 3, generator=stream(1, "rows"))
    x[0] = 9.0
    assert int(typicality(x).argmin()) == 0


def test_two_rows_that_have_only_each_other_are_equally_typical() -> None:
    draw = stream(0, "pairs")
    for _ in range(200):
        one, other = typicality(
            torch.randn(2, 8, generator=draw, dtype=torch.float64)
        ).tolist()
        assert one == other


def test_copies_have_a_finite_density_and_count_as_neighbors() -> None:
    score = typicality(torch.tensor([[1.0], [1.0], [5.0]]), k=1)
    assert_close(score, torch.tensor([1e5, 1e5, 0.25]), rtol=1e-4, atol=0)


def test_rows_that_are_not_finite_score_nan_and_are_nobodys_neighbors() -> None:
    x = torch.tensor([[0.0], [torch.nan], [2.0], [torch.inf], [3.0]])
    score = typicality(x, k=2)
    assert score.isnan().tolist() == [False, True, False, True, False]
    assert_close(score[[0, 2, 4]], typicality(torch.tensor([[0.0], [2.0], [3.0]]), k=2))


def test_a_row_alone_has_no_density_and_no_row_has_none() -> None:
    assert typicality(torch.ones(1, 2)).tolist() == [0.0]
    assert typicality(torch.ones(0, 2)).tolist() == []
