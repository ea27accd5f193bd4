"""Partitions by name, in NumPy, with positions only and bounded loops.

build(partitions, "ExactDirichlet", alpha=0.1).split(y, sites=10, rng=rng)
"""

from typing import TYPE_CHECKING

from fallow.core.exports import import_when_used

if TYPE_CHECKING:
    from fallow.data.partition.basic import IID as IID
    from fallow.data.partition.basic import Counts as Counts
    from fallow.data.partition.basic import Natural as Natural
    from fallow.data.partition.dirichlet import Dirichlet as Dirichlet
    from fallow.data.partition.dirichlet import ExactDirichlet as ExactDirichlet
    from fallow.data.partition.dirichlet import FedMADirichlet as FedMADirichlet
    from fallow.data.partition.few_classes import ClassWindows as ClassWindows
    from fallow.data.partition.few_classes import Patho as Patho
    from fallow.data.partition.few_classes import Shards as Shards
    from fallow.data.partition.longtail import LongTail as LongTail
    from fallow.data.partition.target_dirichlet import TargetDirichlet as TargetDirichlet

MODULES = {
    "ClassWindows": "fallow.data.partition.few_classes",
    "Counts": "fallow.data.partition.basic",
    "Dirichlet": "fallow.data.partition.dirichlet",
    "ExactDirichlet": "fallow.data.partition.dirichlet",
    "FedMADirichlet": "fallow.data.partition.dirichlet",
    "IID": "fallow.data.partition.basic",
    "LongTail": "fallow.data.partition.longtail",
    "Natural": "fallow.data.partition.basic",
    "Patho": "fallow.data.partition.few_classes",
    "Shards": "fallow.data.partition.few_classes",
    "TargetDirichlet": "fallow.data.partition.target_dirichlet",
}
"""Class -> the module that defines it."""
__all__ = [*MODULES]

if not TYPE_CHECKING:
    __getattr__, __dir__ = import_when_used(__name__, MODULES)
