"""Pure functions shared by two or more query strategies."""

from fallow.strategies.parts.bids import (
    BASE,
    DIGITS,
    NO_BID,
    add_digit,
    bids_of,
    next_digits,
)
from fallow.strategies.parts.bundles import (
    CENTERS,
    CLUSTERS,
    LEAST,
    OFTEN,
    check_clusters,
    check_labels,
    check_turns,
    cluster_sites,
    count_nearest,
    nearest_center,
    read_bundles,
    read_shared_features,
    tie_bundles,
    total_bundles,
)
from fallow.strategies.parts.committee import (
    Committee,
    gather_committee,
    logits,
    personal_model,
)
from fallow.strategies.parts.covering import cover, members
from fallow.strategies.parts.crowds import CROWD, rank_in_clusters
from fallow.strategies.parts.density import typicality
from fallow.strategies.parts.diverse import pick_by_cover, pick_by_gradient
from fallow.strategies.parts.gradients import residuals
from fallow.strategies.parts.herding import WIDTH, herd
from fallow.strategies.parts.kcenter import FeatureVectors, Gradients, k_center
from fallow.strategies.parts.kmeans import cluster_rows
from fallow.strategies.parts.kmeanspp import k_means_pp
from fallow.strategies.parts.max_coverage import (
    UnitFeatures,
    maximize_coverage,
    square_distances,
)
from fallow.strategies.parts.neighbors import most_similar, similar_blocks
from fallow.strategies.parts.posterior import (
    SIGMA,
    TIED,
    LastLayer,
    Reduction,
    check_sigma,
    refuse_classes,
)
from fallow.strategies.parts.predictions import margins, predict
from fallow.strategies.parts.quota import apportion, fill
from fallow.strategies.parts.top import (
    first_best,
    order_ties,
    rank_rows,
    shuffle_equal,
    top,
)

__all__ = [
    "BASE",
    "CENTERS",
    "CLUSTERS",
    "CROWD",
    "DIGITS",
    "LEAST",
    "NO_BID",
    "OFTEN",
    "SIGMA",
    "TIED",
    "WIDTH",
    "Committee",
    "FeatureVectors",
    "Gradients",
    "LastLayer",
    "Reduction",
    "UnitFeatures",
    "add_digit",
    "apportion",
    "bids_of",
    "check_clusters",
    "check_labels",
    "check_sigma",
    "check_turns",
    "cluster_rows",
    "cluster_sites",
    "count_nearest",
    "cover",
    "fill",
    "first_best",
    "gather_committee",
    "herd",
    "k_center",
    "k_means_pp",
    "logits",
    "margins",
    "maximize_coverage",
    "members",
    "most_similar",
    "nearest_center",
    "next_digits",
    "order_ties",
    "personal_model",
    "pick_by_cover",
    "pick_by_gradient",
    "predict",
    "rank_in_clusters",
    "rank_rows",
    "read_bundles",
    "read_shared_features",
    "refuse_classes",
    "residuals",
    "shuffle_equal",
    "similar_blocks",
    "square_distances",
    "tie_bundles",
    "top",
    "total_bundles",
    "typicality",
]
