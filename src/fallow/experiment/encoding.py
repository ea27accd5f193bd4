"""The encoder of a recipe, and the features of a simulation: computed once for all sites."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import final

import torch
from torch import Tensor

from fallow.core.methods import Encoder, Methods, Tunable
from fallow.core.missing import Missing
from fallow.core.names import OWN, NamePolicy
from fallow.core.types import SiteId, State
from fallow.encoders.base import Shape, encode_rows, encoder_digest, is_half
from fallow.encoders.build import build_encoder
from fallow.encoders.encoding import Encoding
from fallow.encoders.filling import Filling
from fallow.experiment.finished import TrainedModel
from fallow.privacy.settings import noise_refusal
from fallow.settings.recipe import Recipe
from fallow.sites.seen import Source
from fallow.storage.features import FeatureStore
from fallow.training.tuning import Tuning


def encoder_of(recipe: Recipe, shape: Shape, policy: NamePolicy = OWN) -> Encoder | None:
    """The recipe's encoder for rows of ``shape``; None where it has none.

    Raises ValueError for an unknown name or field, and for rows that it cannot encode.
    """
    if recipe.encoder is None:
        return None
    return build_encoder(recipe.encoder.name, shape, policy, **recipe.encoder.fields)


def shape_seen(recipe: Recipe, shape: Shape, policy: NamePolicy = OWN) -> Shape:
    """The shape of a row as models see it."""
    return shape_after(encoder_of(recipe, shape, policy), shape)


def shape_after(encoder: Encoder | None, shape: Shape) -> Shape:
    """The shape of what an encoder makes of a row; the row's own without one."""
    if encoder is None:
        return shape
    return (encoder.width(shape),)


def with_encoder(
    methods: Methods,
    encoder: Encoder | None,
    shape: Shape,
    missing: Missing | None = None,
) -> Methods:
    """The methods of a run with what its encoder asks of sites: what fills empty cells, where rows
    have some, sums, and the hand-over."""
    result = methods.copy()
    if encoder is None:
        return result
    if missing is not None:
        result["filling"] = Filling(missing)
    result["encoder"] = encoder
    result["encoding"] = Encoding(encoder, shape, fills=missing is not None)
    if isinstance(encoder, Tunable) and encoder.is_tuned:
        result["tuning"] = Tuning(encoder)
    return result


def check_tuning(recipe: Recipe, methods: Methods) -> None:
    """Raise ValueError where a field of the encoder cannot be chosen by first labels."""
    if "tuning" not in methods:
        return
    if recipe.initial_by == "typical":
        raise ValueError(
            f"initial_by is 'typical', which looks at encoded rows, and a field of encoder="
            f"{recipe.encoder} is chosen by first labels; give the field, such as "
            "fourier:gamma=0.25, or set initial_by=random"
        )
    if recipe.privacy.epsilon is not None:
        why = noise_refusal(f"encoder={recipe.encoder}", methods["tuning"].contract)
        raise ValueError(f"{why}; an encoder whose fields are all given needs no labels")


def kept_features(store: FeatureStore, encoder: Encoder, x: Tensor, state: State) -> Source:
    """Features of rows (n, *shape), as a store has or makes them."""
    shape = tuple(x.shape[1:])
    if not len(x):
        return torch.zeros(0, encoder.width(shape))

    def encode(rows: Tensor) -> Tensor:
        return encode_rows(encoder, rows, state)

    return store.features(
        encoder_digest(encoder, state), x, encoder.width(shape), encode, is_half(encoder)
    )


@final
@dataclass(frozen=True)
class CommonFeatures:
    """Features of all rows of a data set, whichever site holds them.

    They do not depend on who holds a row, so partitions, strategies and seeds share them.
    x: (n, *shape) all rows.  at: of each site, which of them it holds.
    """

    encoder: Encoder
    x: Tensor
    at: Mapping[SiteId, Tensor]
    store: FeatureStore = field(default_factory=FeatureStore)
    _last: dict[str, Source] = field(default_factory=dict, init=False, repr=False)

    def of_site(self, site: SiteId, rows: Tensor, state: State) -> tuple[Source, Tensor]:
        """Features of all rows, and which of them are the site's."""
        return self._of_all(state), self.at[site]

    def _of_all(self, state: State) -> Source:
        """Features of all rows, which the store is asked for once: it finds them by a digest of all
        rows, and a thousand sites would take a thousand digests of the same."""
        h = hashlib.sha256()
        for name, value in sorted(state.items()):
            h.update(repr((name, str(value.dtype), tuple(value.shape))).encode())
            h.update(value.detach().contiguous().numpy().tobytes())
        key = h.hexdigest()
        if key not in self._last:
            self._last.clear()  # the state changes once in a run, if at all
            self._last[key] = kept_features(self.store, self.encoder, self.x, state)
        return self._last[key]

    def of_tests(self, x: Tensor, state: State) -> Tensor:
        """Features of rows to test on, (m, d)."""
        tests = kept_features(self.store, self.encoder, x, state)
        if isinstance(tests, Tensor):
            return tests
        return tests.take(torch.arange(len(x)))


def encode_as_trained(
    recipe: Recipe, saved: TrainedModel, x: Tensor, policy: NamePolicy = OWN
) -> Tensor:
    """Rows (n, *shape) by the encoder of a saved model; the rows themselves where it has none.

    Raises ValueError where the encoder is no longer the one that the model was trained with.
    """
    encoder = encoder_of(recipe, tuple(x.shape[1:]), policy)
    if encoder is None:
        return x
    kept = saved.get("encoder")
    if not kept:
        raise ValueError(
            f"the model was saved without what its encoder {recipe.encoder} was fitted to; train "
            "it again"
        )
    state = kept["state"]
    if encoder_digest(encoder, state) != kept["digest"]:
        raise ValueError(
            f"the encoder {recipe.encoder} is not the one that this model was trained with: it has "
            "another version or other weights here; install the same ones"
        )
    return encode_rows(encoder, x, state)


def add_encoder(model: TrainedModel, encoder: Encoder | None, state: State | None) -> None:
    """Put into a model that is saved what it needs of an encoder, beside its name, if it has one."""
    if encoder is not None and state is not None:
        model["encoder"] = {"state": state, "digest": encoder_digest(encoder, state)}
