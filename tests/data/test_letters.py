"""A published defect of a generator of federated letters: test images used for training."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fallow.data import check_leak, drop_leaks, row_hashes
from fallow.data.dataset import Dataset

USERS = 100
CLASSES = 10
IMAGES = 4000  # images of each class from any writer


def make_letters(is_fixed: bool) -> Dataset:
    """Assign images to users as the published generator does.

    User u takes images of the classes u, u + 1, u + 2 (mod 10), each from where the last
    user stopped, and tests on a tenth. The position is reset to 0 if too few images are
    left. The published comparison is reversed, so the reset happens almost always.
    """
    rng = np.random.default_rng(0)
    positions = [0] * CLASSES
    train: list[int] = []
    test: list[int] = []
    for user in range(USERS):
        item = int(rng.lognormal(4, 1) + 100) // 3
        own: list[int] = []
        for c in ((user + step) % CLASSES for step in range(3)):
            is_over = positions[c] + item > IMAGES
            if is_over == is_fixed:
                positions[c] = 0
            own += range(c * IMAGES + positions[c], c * IMAGES + positions[c] + item)
            positions[c] += item
        order = rng.permutation(own).tolist()
        train = train + order[len(own) // 10 :]
        test = test + order[: len(own) // 10]
    parts = (torch.tensor(part) for part in (train, test))
    (x, y), (x_test, y_test) = ((bits(ids), ids // IMAGES) for ids in parts)
    return Dataset("letters", x, y, x_test, y_test, tuple("abcdefghij"))


def bits(ids: torch.Tensor) -> torch.Tensor:
    """Return a distinct image for every number."""
    return (ids[:, None] >> torch.arange(16) & 1).float()


def test_nearly_all_test_images_of_the_published_generator_are_trained_on_and_it_is_noticed() -> (
    None
):
    result = make_letters(is_fixed=False)
    leaks = len(result.x_test) - len(drop_leaks(result).x_test)
    assert leaks >= 0.9 * len(result.x_test)
    with pytest.raises(
        ValueError, match=f"letters: {leaks} of .* test examples are also training"
    ):
        check_leak(result)


def test_with_its_comparison_corrected_no_image_is_used_twice() -> None:
    result = make_letters(is_fixed=True)
    check_leak(result)
    assert drop_leaks(result) is result
    all_rows = torch.cat([result.x, result.x_test])
    assert len(set(row_hashes(all_rows))) == len(all_rows)
