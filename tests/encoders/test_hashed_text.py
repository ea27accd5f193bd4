"""Hashed text against scikit-learn's TF-IDF weighting of pooled texts."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.feature_extraction.text import TfidfTransformer

from fallow.core.missing import BUCKETS
from fallow.core.streams import stream
from fallow.data.loaders.hashing import hash_texts
from fallow.encoders import HashedText
from fallow.encoders.base import encode_rows, encoder_digest
from fallow.encoders.hashed_text import weigh
from tests.encoders.asks import cut_rows, find_wrong_state, fit_encoder

WORDS = [
    "fever",
    "cough",
    "pain",
    "control",
    "nothing",
    "since",
    "monday",
    "left",
    "knee",
    "rash",
    "child",
]


def write_notes(n: int, seed: int = 0) -> list[str]:
    """Return notes of one to eight words, and an empty one."""
    draw = np.random.default_rng(seed)
    notes = [" ".join(draw.choice(WORDS, draw.integers(1, 9))) for _ in range(n - 1)]
    return [*notes, ""]


NOTES = torch.from_numpy(hash_texts(write_notes(80)))  # (80, BUCKETS)
AGES = torch.randn(80, 2, generator=stream(0, "ages")) * 20 + 50
AGES[:, 1] = 3.0  # constant


def test_weights_are_those_of_scikit_learn_on_pooled_texts() -> None:
    state = fit_encoder(HashedText(), cut_rows(NOTES, 5, seed=0))
    pooled = TfidfTransformer().fit(NOTES.double().numpy())
    np.testing.assert_allclose(state["weight"].numpy(), pooled.idf_, rtol=1e-12)
    weighted = weigh(NOTES, state["weight"].float()).numpy()
    wanted = pooled.transform(NOTES.double().numpy()).toarray()
    np.testing.assert_allclose(weighted, wanted, atol=1e-6)
    assert np.abs(weighted[-1]).max() == 0  # the empty note


@pytest.mark.parametrize("others", [0, 2])
def test_features_do_not_depend_on_the_division_among_sites(others: int) -> None:
    encoder = HashedText(features=64)
    x = torch.cat([AGES[:, :others], NOTES], dim=1)
    whole = fit_encoder(encoder, [x])
    z = encode_rows(encoder, x, whole)
    assert z.shape == (80, others + 64)
    for sites, seed in ((2, 0), (7, 1), (20, 2)):
        state = fit_encoder(encoder, cut_rows(x, sites, seed))
        assert encoder_digest(encoder, state) == encoder_digest(encoder, whole)
        assert torch.equal(encode_rows(encoder, x, state), z)


def test_the_projection_is_linear_and_keeps_inner_products_roughly() -> None:
    encoder = HashedText(features=2048)
    state = fit_encoder(encoder, [NOTES])
    z = encode_rows(encoder, NOTES, state)
    weighted = weigh(NOTES, state["weight"].float())
    products = weighted @ weighted.T
    assert float((z @ z.T - products).abs().mean()) < 0.02 < float(products.abs().mean())
    full = encode_rows(HashedText(features=BUCKETS), NOTES, state)
    torch.testing.assert_close(full @ full.T, products)  # a permutation with signs


def test_two_text_columns_are_weighted_apart_and_other_columns_are_standardized() -> None:
    encoder = HashedText(features=32, columns=2)
    other = torch.from_numpy(hash_texts(write_notes(80, seed=1)))
    x = torch.cat([AGES, NOTES, other], dim=1)
    z = encode_rows(encoder, x, fit_encoder(encoder, cut_rows(x, 3, seed=0)))
    assert z.shape == (80, 2 + 2 * 32) and encoder.width((2 + 2 * BUCKETS,)) == 66
    age = AGES[:, 0]
    torch.testing.assert_close(
        z[:, 0], (age - age.mean()) / age.std(correction=0), atol=0.01, rtol=0
    )
    assert float(z[:, 1].abs().max()) == 0
    alone = HashedText(features=32)
    for first, column in ((2, NOTES), (34, other)):
        own = encode_rows(alone, column, fit_encoder(alone, [column]))
        torch.testing.assert_close(z[:, first : first + 32], own)


def test_tables_without_texts_and_too_many_features_are_refused() -> None:
    with pytest.raises(ValueError, match=r"list the columns of free text with columns="):
        HashedText().width((20,))
    with pytest.raises(ValueError, match="at most 4096, the number of hashed n-grams"):
        HashedText(features=5000)


def test_a_state_that_cannot_be_is_refused() -> None:
    encoder = HashedText(features=8)
    shape = (2 + BUCKETS,)
    state = fit_encoder(encoder, [torch.cat([AGES, NOTES], dim=1)])
    assert find_wrong_state(encoder, shape, state) is None
    changes = {
        "weight": (torch.zeros(BUCKETS), "weight is 0, which is not above 0"),
        "spread": (torch.tensor([-1.0, 0.0]), "spread is below 0"),
        "center": (torch.zeros(3), "center has the shape (3,) and not (2,)"),
    }
    for name, (value, why) in changes.items():
        assert why in str(find_wrong_state(encoder, shape, {**state, name: value}))
