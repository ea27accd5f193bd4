"""FEMNIST from LEAF's files, and the leak of its generator into test images."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
import torch

from fallow.data import Dataset, check_leak, load
from fallow.data.partition.partitions import ClassWindows
from fallow_papers.datasets.femnist import MAX_IMAGES

USERS = 40
OF_CLASS = 4000


def write(folder: Path, **writers: Sequence[int]) -> None:
    """Write one file per writer, with distinct images."""
    (folder / "femnist").mkdir()
    n = 0
    for i, (writer, labels) in enumerate(writers.items()):
        images = [[(n + k) / 1000, *[1.0] * 783] for k in range(len(labels))]
        n += len(labels)
        text = json.dumps({"user_data": {writer: {"x": images, "y": list(labels)}}})
        (folder / "femnist" / f"all_data_{i}.json").write_text(text)


def test_letters_are_ten_classes_by_writer(tmp_path: Path) -> None:
    write(tmp_path, f1=[36, 45, 0] * 5, f2=[36, 61, 40] * 5)
    dataset = load("femnist_letters", tmp_path)
    assert dataset.classes == tuple("abcdefghij")
    assert dataset.site_names == ("writer f1", "writer f2")
    assert (
        sorted(torch.cat([dataset.y, dataset.y_test]).tolist())
        == [0] * 10 + [4] * 5 + [9] * 5
    )
    assert dataset.x.shape[1:] == (1, 28, 28) and float(dataset.x.max()) == 1.0
    check_leak(dataset)


def test_all_characters_are_62_classes(tmp_path: Path) -> None:
    write(tmp_path, f1=list(range(62)) * 2)
    outcome = load("femnist", tmp_path)
    assert (
        outcome.n_classes,
        outcome.classes[36],
        len(outcome.x) + len(outcome.x_test),
    ) == (
        62,
        "a",
        124,
    )


def test_of_a_letter_the_first_images_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fallow_papers.datasets.femnist.MAX_IMAGES", 7)
    write(tmp_path, f1=[36] * 5, f2=[36] * 5 + [37] * 2)
    outcome = load("femnist_letters", tmp_path)
    assert len(outcome.x) + len(outcome.x_test) == 9
    assert MAX_IMAGES == 4000


@pytest.mark.parametrize(
    "text", ["{}", "not json", '{"user_data": {"f": {"x": [[0]], "y": [1]}}}']
)
def test_another_file_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "femnist").mkdir()
    (tmp_path / "femnist" / "all_data_0.json").write_text(text)
    with pytest.raises(ValueError, match=r"all_data_0.json is not in LEAF's format"):
        load("femnist", tmp_path)


def test_missing_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(
        ValueError, match=r"the file femnist/all_data_0.json is needed, which is not in"
    ):
        load("femnist", tmp_path)


# -- the generator, by image numbers: with its published wrap-around test and the correct
# one -----


def generate_users(wraps: Callable[[int], bool]) -> list[list[int]]:
    """Generate each user's images: three neighboring classes, from their cursors."""
    rng = np.random.default_rng(0)
    cursor = np.zeros(10, dtype=np.int64)
    sizes = (rng.lognormal(4, 1, USERS) + 100).astype(int)
    users = []
    for user, size in enumerate(sizes):
        rows: list[int] = []
        for c in ((user + k) % 10 for k in range(3)):
            n = int(size) // 3
            if wraps(int(cursor[c]) + n):
                cursor[c] = 0
            rows += [c * OF_CLASS + int(cursor[c]) + i for i in range(n)]
            cursor[c] += n
        users.append(rows)
    return users


def dataset_of(users: Sequence[Sequence[int]]) -> Dataset:
    """Return a data set of image numbers; 10 % of each user's are test examples."""
    rng = np.random.default_rng(1)
    mixed = [rng.permutation(np.array(rows_of_user)) for rows_of_user in users]
    train = np.concatenate(
        [rows_of_user[len(rows_of_user) // 10 :] for rows_of_user in mixed]
    )
    test = np.concatenate(
        [rows_of_user[: len(rows_of_user) // 10] for rows_of_user in mixed]
    )
    x, x_test = (torch.from_numpy(at).float()[:, None] for at in (train, test))
    y, y_test = (torch.from_numpy(at // OF_CLASS) for at in (train, test))
    return Dataset("numbered", x, y, x_test, y_test, classes=tuple("abcdefghij"))


def test_images_that_the_public_generator_uses_again_are_found() -> None:
    result = dataset_of(generate_users(lambda end: end < OF_CLASS))
    with pytest.raises(
        ValueError, match="test examples are also training examples"
    ) as error:
        check_leak(result)
    leaked = int(str(error.value).split()[1])
    assert leaked > 0.9 * len(result.x_test)


def test_with_the_comparison_the_right_way_around_nothing_leaks() -> None:
    check_leak(dataset_of(generate_users(lambda end: end > OF_CLASS)))


def test_windows_of_classes_are_that_generator_without_reuse() -> None:
    y = np.repeat(np.arange(10), OF_CLASS)
    parts = ClassWindows().split(y, USERS, np.random.default_rng(0))
    sizes = (np.random.default_rng(0).lognormal(4, 1, USERS) + 100).astype(int)
    for user, (part, size) in enumerate(zip(parts, sizes, strict=True)):
        counts = {(user + k) % 10: int(size) // 3 for k in range(3)}
        assert dict(zip(*np.unique(y[part], return_counts=True), strict=True)) == counts
    assert len(np.unique(np.concatenate(parts))) == sum(map(len, parts))


def test_windows_end_where_the_rows_do() -> None:
    y = np.repeat(np.arange(4), 100)
    few = ClassWindows(classes=2).split(y, 4, np.random.default_rng(0))
    assert len(few[0]) >= 100 > len(few[-1])
    assert max(np.bincount(np.concatenate(few)).tolist()) == 1
    with pytest.raises(ValueError, match="are left for site"):
        ClassWindows(classes=2).split(y, 40, np.random.default_rng(0))
    with pytest.raises(ValueError, match="least is 1 for sites with 3 classes"):
        ClassWindows(least=1)
