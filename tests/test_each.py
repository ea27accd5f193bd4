"""Table-driven tests."""

from __future__ import annotations

import pytest

from tests.each import each_of, in_sample


def test_every_row_is_tried_and_those_that_fail_are_named() -> None:
    tried = []

    @each_of("row", [3, "four", 5, 6])
    def is_small(row: object, limit: int) -> None:
        tried.append(row)
        if row == 6:
            pytest.fail("six")
        assert isinstance(row, int)
        assert row < limit

    with pytest.raises(AssertionError) as error:
        is_small(limit=5)
    head, *lines = [line for line in str(error.value).splitlines() if line[:2] in HEADS]
    assert tried == [3, "four", 5, 6]
    assert head == "3 of 4 rows fail"
    assert [line.partition(":")[0] for line in lines] == ["four", "5", "6"]
    assert isinstance(error.value.__cause__, AssertionError)
    is_small.__wrapped__(3, limit=5)  # type: ignore[attr-defined]


HEADS = ("3 ", "fo", "5:", "6:")


@each_of("row, square", [(1, 1), (2, 4)])
def test_a_row_may_be_of_several_arguments(row: int, square: int) -> None:
    assert row**2 == square


def test_a_table_has_rows() -> None:
    with pytest.raises(AssertionError, match="without rows"):
        each_of("row", [])


@pytest.fixture
def limit() -> int:
    return 3


@each_of("row", [1, 2])
@pytest.mark.filterwarnings("error")
def test_a_fixture_is_for_all_rows(row: int, limit: int) -> None:
    assert row < limit


def test_three_samples_of_long_tests_are_all_of_them_once() -> None:
    files = [f"tests/test_{n}.py" for n in range(60)]
    samples = [
        [file for file in files if in_sample(file, end)] for end in ("a0", "a1", "a2")
    ]
    assert sorted(file for sample in samples for file in sample) == sorted(files)
    assert all(10 <= len(sample) <= 30 for sample in samples)
