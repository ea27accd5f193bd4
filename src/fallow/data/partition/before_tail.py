"""The partitions that `LongTail` can use: all except itself."""

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
    from fallow.data.partition.target_dirichlet import TargetDirichlet as TargetDirichlet

MODULES = {
    "ClassWindows": "fallow.data.partition.few_classes",
    "Counts": "fallow.data.partition.basic",
    "Dirichlet": "fallow.data.partition.dirichlet",
    "ExactDirichlet": "fallow.data.partition.dirichlet",
    "FedMADirichlet": "fallow.data.partition.dirichlet",
    "IID": "fallow.data.partition.basic",
    "Natural": "fallow.data.partition.basic",
    "Patho": "fallow.data.partition.few_classes",
    "Shards": "fallow.data.partition.few_classes",
    "TargetDirichlet": "fallow.data.partition.target_dirichlet",
}
"""Class -> the module that defines it."""
__all__ = [*MODULES]

if not TYPE_CHECKING:
    __getattr__, __dir__ = import_when_used(__name__, MODULES)
