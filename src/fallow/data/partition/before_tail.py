"""The partitions that `LongTail` can use: all except itself."""

from fallow.data.partition.base import Partition
from fallow.data.partition.basic import IID, Counts, Natural
from fallow.data.partition.dirichlet import Dirichlet, ExactDirichlet, FedMADirichlet
from fallow.data.partition.few_classes import ClassWindows, Patho, Shards
from fallow.data.partition.target_dirichlet import TargetDirichlet

__all__ = [
    "IID",
    "ClassWindows",
    "Counts",
    "Dirichlet",
    "ExactDirichlet",
    "FedMADirichlet",
    "Natural",
    "Partition",
    "Patho",
    "Shards",
    "TargetDirichlet",
]
