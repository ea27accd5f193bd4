"""Partitions by name, in NumPy, with positions only and bounded loops.

build(partitions, "ExactDirichlet", alpha=0.1).split(y, sites=10, rng=rng)
"""

from fallow.data.partition.basic import IID, Counts, Natural
from fallow.data.partition.dirichlet import Dirichlet, ExactDirichlet, FedMADirichlet
from fallow.data.partition.few_classes import ClassWindows, Patho, Shards
from fallow.data.partition.longtail import LongTail
from fallow.data.partition.target_dirichlet import TargetDirichlet

__all__ = [
    "IID",
    "ClassWindows",
    "Counts",
    "Dirichlet",
    "ExactDirichlet",
    "FedMADirichlet",
    "LongTail",
    "Natural",
    "Patho",
    "Shards",
    "TargetDirichlet",
]


def __dir__() -> list[str]:
    return sorted(__all__)
