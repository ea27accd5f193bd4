"""Pure functions with two or more users among the strategies."""

from fallow.queries.parts.committee import (
    Committee,
    gather_committee,
    logits,
    personal_model,
)
from fallow.queries.parts.density import typicality
from fallow.queries.parts.diverse import by_cover, by_gradient
from fallow.queries.parts.gradients import residuals
from fallow.queries.parts.kcenter import Features, Gradients, k_center
from fallow.queries.parts.kmeans import clusters
from fallow.queries.parts.kmeanspp import k_means_pp
from fallow.queries.parts.neighbours import most_similar
from fallow.queries.parts.posterior import (
    SIGMA,
    LastLayer,
    Reduction,
    check_sigma,
    first_best,
    refuse_classes,
)
from fallow.queries.parts.quota import apportion, fill
from fallow.queries.parts.top import rank_rows, top

__all__ = [
    "SIGMA",
    "Committee",
    "Features",
    "Gradients",
    "LastLayer",
    "Reduction",
    "apportion",
    "by_cover",
    "by_gradient",
    "check_sigma",
    "clusters",
    "fill",
    "first_best",
    "gather_committee",
    "k_center",
    "k_means_pp",
    "logits",
    "most_similar",
    "personal_model",
    "rank_rows",
    "refuse_classes",
    "residuals",
    "top",
    "typicality",
]
