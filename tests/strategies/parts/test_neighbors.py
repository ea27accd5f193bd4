import pytest
import torch
from torch import Tensor
from torch.nn.functional import cosine_similarity
from torch.testing import assert_close

from fallow.core.streams import stream
from fallow.strategies.parts import neighbors
from fallow.strategies.parts.neighbors import most_similar


def plain(x: Tensor, k: int, more: Tensor) -> list[list[int]]:
    """Find neighbors by the definition: all pairs without self, sorted."""
    distances = []
    k_at_most = min(k, len(x) - 1)
    for i, row in enumerate([*x, *more]):
        others = [j for j in range(len(x)) if j != i]
        cosine = [float(cosine_similarity(row, other, dim=0)) for other in x]
        others.sort(key=cosine.__getitem__, reverse=True)
        distances.append(others[:k_at_most])
    return distances


@pytest.mark.parametrize("k", [1, 4, 40])
@pytest.mark.parametrize("chunk", [3, 1024])
def test_it_finds_the_same_rows_as_all_pairs_do(
    k: int, chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(neighbors, "CHUNK", chunk)
    draw = stream(0, "rows")
    x, more = (torch.randn(n, 5, generator=draw, dtype=torch.float64) for n in (11, 4))
    cosine, at = most_similar(x, k, more)
    assert at.tolist() == plain(x, k, more)
    rows = torch.cat([x, more])
    assert_close(cosine, cosine_similarity(rows[:, None, :], x[at], dim=2))


def test_a_row_is_left_out_as_itself_and_its_copies_stay() -> None:
    x = torch.tensor([[1.0, 2.0], [3.0, 1.0], [1.0, 2.0], [2.0, 4.0]])
    cosine, at = most_similar(x, 2)
    assert [set(near) for near in at.tolist()][0::2] == [{2, 3}, {0, 3}]
    assert_close(cosine[[0, 2, 3]], torch.ones(3, 2, dtype=torch.float64))


def test_a_row_of_the_others_is_compared_with_every_row() -> None:
    x = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    assert most_similar(x, 1, x)[1].flatten().tolist() == [1, 0, 0, 1]


@pytest.mark.parametrize("m", [0, 1])
def test_a_row_alone_has_no_neighbors(m: int) -> None:
    cosine, at = most_similar(torch.ones(m, 3), 5, torch.ones(2, 3))
    assert cosine.shape == at.shape == (m + 2, 0)


# a sample that is too small, and an adequate one
@pytest.mark.parametrize("sample", [40, 400])
def test_many_of_very_many_are_those_of_the_plain_search(
    sample: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = torch.randn(1200, 6, generator=stream(0, "many"), dtype=torch.float64)
    expected = most_similar(x, 60)
    monkeypatch.setattr(neighbors, "EXACT", 1000)
    monkeypatch.setattr(neighbors, "SAMPLE", sample)
    monkeypatch.setattr(neighbors, "ROOM", 0.5)  # some examples have too few
    result = most_similar(x, 60)
    assert torch.equal(result[1], expected[1])
    assert_close(result[0], expected[0])


@pytest.mark.parametrize("sample", [40, 400])
@pytest.mark.parametrize("spare", [1, 4])  # lists are truncated always, and never
def test_multiplying_each_pair_once_finds_the_same(
    sample: int, spare: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = torch.randn(1200, 6, generator=stream(0, "many"), dtype=torch.float64)
    more = torch.randn(30, 6, generator=stream(0, "more"), dtype=torch.float64)
    expected = most_similar(x, 60, more)
    monkeypatch.setattr(neighbors, "PAIRED", 1000)
    monkeypatch.setattr(neighbors, "TILE", 256)  # the last block has 176 examples
    monkeypatch.setattr(neighbors, "SAMPLE", sample)
    monkeypatch.setattr(neighbors, "SPARE", spare)
    monkeypatch.setattr(neighbors, "ROOM", 0.5)  # some examples have too few
    values = most_similar(x, 60, more)
    assert torch.equal(values[1], expected[1])
    assert_close(values[0], expected[0])


def test_lists_of_rows_that_are_all_alike_stay_short(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kinds = torch.randn(3, 6, generator=stream(0, "kinds"))
    x = kinds[torch.arange(1200) % 3]  # 400 copies of each
    monkeypatch.setattr(neighbors, "PAIRED", 1000)
    monkeypatch.setattr(neighbors, "SAMPLE", 300)
    monkeypatch.setattr(neighbors, "TILE", 64)
    longest = []
    add = neighbors._List.add

    def add_and_look(self: neighbors._List, *pairs: neighbors.Array) -> None:
        add(self, *pairs)
        longest.append(self.n_passed)

    monkeypatch.setattr(neighbors._List, "add", add_and_look)
    cosines, at = most_similar(x, 60)
    assert_close(cosines, torch.ones_like(cosines))
    assert (at % 3 == (torch.arange(1200) % 3)[:, None]).all()
    assert (at != torch.arange(1200)[:, None]).all()
    assert max(longest) <= neighbors.SPARE * 60 * 64


def test_nearly_all_rows_can_be_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.randn(300, 6, generator=stream(0, "many"), dtype=torch.float64)
    expected = most_similar(x, 299)
    for name in ("EXACT", "PAIRED"):
        monkeypatch.setattr(neighbors, name, 200)
        monkeypatch.setattr(neighbors, "SAMPLE", 100)
        result = most_similar(x, 299)
        assert torch.equal(result[1], expected[1])
