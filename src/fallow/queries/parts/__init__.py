"""Pure functions with two or more users among the strategies."""

from fallow.queries.parts.bids import (
    BASE,
    DIGITS,
    NO_BID,
    add_digit,
    bids_of,
    next_digits,
)
from fallow.queries.parts.bundles import (
    LEAST,
    OFTEN,
    check_clusters,
    check_labels,
    check_turns,
    cluster_sites,
    count_nearest,
    nearest_centre,
    read_bundles,
    read_shared_features,
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
from fallow.queries.parts.crowds import CROWD, rank_in_clusters
from fallow.queries.parts.density import typicality
from fallow.queries.parts.diverse import pick_by_cover, pick_by_gradient
from fallow.queries.parts.gradients import residuals
from fallow.queries.parts.herding import check_width, herd
from fallow.queries.parts.kcenter import Features, Gradients, k_center
from fallow.queries.parts.kmeans import cluster_rows
from fallow.queries.parts.kmeanspp import k_means_pp
from fallow.queries.parts.max_coverage import (
    UnitFeatures,
    maximize_coverage,
    square_distances,
)
from fallow.queries.parts.neighbours import most_similar, similar_blocks
from fallow.queries.parts.posterior import (
    SIGMA,
    TIED,
    LastLayer,
    Reduction,
    check_sigma,
    refuse_classes,
)
from fallow.queries.parts.predictions import margins, predict
from fallow.queries.parts.quota import apportion, fill
from fallow.queries.parts.top import first_best, order_ties, rank_rows, shuffle_equal, top

__all__ = [
    "BASE",
    "CROWD",
    "DIGITS",
    "LEAST",
    "NO_BID",
    "OFTEN",
    "SIGMA",
    "TIED",
    "Committee",
    "Features",
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
    "check_width",
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
    "nearest_centre",
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
