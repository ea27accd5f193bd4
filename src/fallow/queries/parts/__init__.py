"""Pure functions with two or more users among the strategies."""

from fallow.queries.parts.bids import DIGITS, NO_BID, add_digit, bids_of, next_digits
from fallow.queries.parts.bundles import (
    LEAST,
    MOST_CENTRES,
    OFTEN,
    find_centres,
    kept_bundles,
    nearest_centre,
    shared_features,
    tie_bundles,
    total_bundles,
)
from fallow.queries.parts.committee import (
    Committee,
    gather_committee,
    logits,
    personal_model,
)
from fallow.queries.parts.covering import cover, members
from fallow.queries.parts.density import typicality
from fallow.queries.parts.diverse import by_cover, by_gradient
from fallow.queries.parts.gradients import residuals
from fallow.queries.parts.kcenter import Features, Gradients, k_center
from fallow.queries.parts.kmeans import clusters
from fallow.queries.parts.kmeanspp import k_means_pp
from fallow.queries.parts.neighbours import most_similar, similar_blocks
from fallow.queries.parts.posterior import (
    SIGMA,
    TIED,
    LastLayer,
    Reduction,
    check_sigma,
    first_best,
    refuse_classes,
)
from fallow.queries.parts.quota import apportion, fill
from fallow.queries.parts.top import rank_rows, top

__all__ = [
    "DIGITS",
    "LEAST",
    "MOST_CENTRES",
    "NO_BID",
    "OFTEN",
    "SIGMA",
    "TIED",
    "Committee",
    "Features",
    "Gradients",
    "LastLayer",
    "Reduction",
    "add_digit",
    "apportion",
    "bids_of",
    "by_cover",
    "by_gradient",
    "check_sigma",
    "clusters",
    "cover",
    "fill",
    "find_centres",
    "first_best",
    "gather_committee",
    "k_center",
    "k_means_pp",
    "kept_bundles",
    "logits",
    "members",
    "most_similar",
    "nearest_centre",
    "next_digits",
    "personal_model",
    "rank_rows",
    "refuse_classes",
    "residuals",
    "shared_features",
    "similar_blocks",
    "tie_bundles",
    "top",
    "total_bundles",
    "typicality",
]
