"""Construction of an encoder, and shared features of a simulation."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, final

import torch
from torch import Tensor

from fallow import encoders
from fallow.core.build import build
from fallow.core.methods import Encoder, Methods, TunableEncoder
from fallow.core.missing import Missing, find_text_columns
from fallow.core.model_vectors import Layout
from fallow.core.names import OWN, NamePolicy
from fallow.core.types import SiteId, State
from fallow.core.values import resolve_dims
from fallow.encoders.base import (
    HasWeights,
    Shape,
    ShapeDependent,
    describe_shape,
    encode_rows,
    encoder_digest,
    is_half,
)
from fallow.encoders.encoding import Encoding, Imputation
from fallow.experiment.finished import TrainedModel
from fallow.experiment.methods import joins_groups
from fallow.privacy.settings import noise_refusal
from fallow.settings.config import ExperimentConfig
from fallow.settings.spec import Spec
from fallow.sites.cases import JOINED
from fallow.sites.seen_rows import Source
from fallow.sites.site import Encoded
from fallow.storage.features import FeatureStore
from fallow.training.tuning import Tuning


def encoder_of(
    config: ExperimentConfig, shape: Shape, policy: NamePolicy = OWN
) -> Encoder | None:
    """Return the encoder for examples of ``shape``, or None without an encoder.

    Raises ValueError for an unknown name or parameter, and for unsupported examples.
    """
    if config.encoder is None:
        return None
    return build_encoder(config.encoder.name, shape, policy, **config.encoder.fields)


def encoder_for_texts(encoder: Spec | None, features: Sequence[str]) -> Spec | None:
    """Return the encoder of a table; with text columns, "auto" and no encoder become `HashedText`.

    features: names of the features of the table.
    """
    columns = len(find_text_columns(features))
    if not columns or encoder not in (None, Spec("auto"), Spec("hashed-text")):
        return encoder
    fields = {}
    if columns > 1:
        fields["columns"] = columns
    return Spec("hashed-text", fields)


def shape_seen(config: ExperimentConfig, shape: Shape, policy: NamePolicy = OWN) -> Shape:
    """Return the shape of an example after encoding."""
    return shape_after(config, encoder_of(config, shape, policy), shape)


def shape_after(config: ExperimentConfig, encoder: Encoder | None, shape: Shape) -> Shape:
    """Return the shape of encoded examples, which is ``shape`` without an encoder."""
    if encoder is None:
        return shape
    width = encoder.width(shape)
    if joins_groups(config):
        width *= JOINED
    return (width,)


def find_dims(
    config: ExperimentConfig,
    layout: Layout,
    encoder: Encoder | None,
    shape: Shape,
    classes: int,
    sites: int,
) -> dict[str, int]:
    """Return the dimensions of declared fields of a study with rows of ``shape``."""
    return {
        **resolve_dims(layout, classes, sites),
        "inputs": math.prod(shape_after(config, encoder, shape)),
        "cells": math.prod(shape),
    }


def with_encoder(
    methods: Methods,
    encoder: Encoder | None,
    shape: Shape,
    missing: Missing | None = None,
) -> Methods:
    """Add the encoder to the algorithms of a run, with the imputation of empty cells if needed."""
    result = methods.copy()
    if encoder is None:
        return result
    if missing is not None:
        result["filling"] = Imputation(missing)
    result["encoder"] = encoder
    result["encoding"] = Encoding(encoder, shape, fills=missing is not None)
    if isinstance(encoder, TunableEncoder) and encoder.is_tuned:
        result["tuning"] = Tuning(encoder, shape)
    return result


def check_tuning(config: ExperimentConfig, methods: Methods) -> None:
    """Raise ValueError if a parameter of the encoder cannot be tuned on the initial labeled set."""
    if "tuning" not in methods:
        return
    if config.initial_by == "typical":
        raise ValueError(
            "initial_by is 'typical', which needs encoded examples, and a parameter of "
            f"encoder={config.encoder} is tuned on the initial labeled set; set the "
            "parameter, such as fourier:gamma=0.25, or set initial_by=random"
        )
    if config.privacy.epsilon is not None:
        why = noise_refusal(f"encoder={config.encoder}", methods["tuning"].contract)
        raise ValueError(f"{why}; an encoder with all parameters set needs no labels")


def kept_features(store: FeatureStore, encoder: Encoder, x: Tensor, state: State) -> Source:
    """Return features of examples (n, *shape), from a store or newly computed."""
    shape = tuple(x.shape[1:])
    if not len(x):
        return torch.zeros(0, encoder.width(shape))

    def encode(rows: Tensor) -> Tensor:
        return encode_rows(encoder, rows, state)

    return store.features(
        encoder_digest(encoder, state),
        x,
        encoder.width(shape),
        encode,
        is_half=is_half(encoder),
        is_slow=isinstance(encoder, HasWeights),
    )


def encoding_with(store: FeatureStore, encoder: Encoder | None) -> Encoded | None:
    """Return the function that encodes the examples of a site, or None without an encoder."""
    if encoder is None:
        return None

    def encode(site: SiteId, x: Tensor, state: State) -> tuple[Source, None]:
        return kept_features(store, encoder, x, state), None

    return encode


@final
@dataclass(frozen=True)
class CommonFeatures:
    """Features of all examples of a dataset, shared by partitions, strategies and seeds.

    Attributes
    ----------
    x : Tensor of shape (n, *shape)
        All examples.
    at : mapping
        Indices of the examples of each site.
    """

    encoder: Encoder
    x: Tensor
    at: Mapping[SiteId, Tensor]
    store: FeatureStore = field(default_factory=FeatureStore)
    _last: dict[str, Source] = field(default_factory=dict, init=False, repr=False)

    def of_site(self, site: SiteId, rows: Tensor, state: State) -> tuple[Source, Tensor]:
        """Return the features of all examples, and the indices of those of a site."""
        return self._of_all(state), self.at[site]

    def _of_all(self, state: State) -> Source:
        """Return the features of all examples, cached.

        The store identifies them by a digest of all examples, which should not be computed for each
        site.
        """
        h = hashlib.sha256()
        for name, value in sorted(state.items()):
            h.update(repr((name, str(value.dtype), tuple(value.shape))).encode())
            h.update(value.detach().contiguous().numpy().tobytes())
        key = h.hexdigest()
        if key not in self._last:
            self._last.clear()  # the state changes at most once in a run
            self._last[key] = kept_features(self.store, self.encoder, self.x, state)
        return self._last[key]

    def of_tests(self, x: Tensor, state: State) -> Tensor:
        """Return the features of test examples, (m, d)."""
        tests = kept_features(self.store, self.encoder, x, state)
        if isinstance(tests, Tensor):
            return tests
        return tests.take(torch.arange(len(x)))


def encode_as_trained(
    config: ExperimentConfig, saved: TrainedModel, x: Tensor, policy: NamePolicy = OWN
) -> Tensor:
    """Encode examples (n, *shape) as in training; unchanged without an encoder.

    Raises ValueError if the encoder differs from that of the saved model.
    """
    encoder = encoder_of(config, tuple(x.shape[1:]), policy)
    if encoder is None:
        return x
    kept = saved.get("encoder")
    if not kept:
        raise ValueError(
            "the model was saved without the fitted state of its encoder "
            f"{config.encoder}; train it again"
        )
    state = kept["state"]
    if encoder_digest(encoder, state) != kept["digest"]:
        raise ValueError(
            f"the encoder {config.encoder} differs from the one in training, in its "
            "version or weights; install the same ones"
        )
    return encode_rows(encoder, x, state)


def add_encoder(model: TrainedModel, encoder: Encoder | None, state: State | None) -> None:
    """Add the fitted encoder, if any, to a model to be saved."""
    if encoder is not None and state is not None:
        model["encoder"] = {"state": state, "digest": encoder_digest(encoder, state)}


MAX_FEATURES = 65_536
"""Maximum number of features: a thousand examples take 0.25 GB."""


def build_encoder(
    name: str, shape: Sequence[int], policy: NamePolicy = OWN, /, **fields: Any
) -> Encoder:
    """Build the encoder ``name`` for examples of ``shape``; ``policy``: names that resolve.

    Raises ValueError for an unknown name or field, and for examples that it cannot encode.

    >>> build_encoder("convolution", (1, 28, 28), filters=8).width((1, 28, 28))
    128
    """
    built: Encoder = build(encoders, name, policy, **fields)
    if isinstance(built, ShapeDependent):
        built = built.settle(tuple(shape))
    width = built.width(tuple(shape))
    if width < 1:
        raise ValueError(
            f"{name} does not support examples of shape {describe_shape(shape)}"
        )
    if width > MAX_FEATURES:
        raise ValueError(
            f"{name} computes {width:,} features for examples of shape "
            f"{describe_shape(shape)}, more than the maximum of {MAX_FEATURES:,}; set a lower "
            "number"
        )
    return built
