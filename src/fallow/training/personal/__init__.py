"""Personalized federated learning: one model per site."""

from typing import TYPE_CHECKING

from fallow.core.exports import import_when_used

if TYPE_CHECKING:
    from fallow.training.personal.apfl import APFL as APFL
    from fallow.training.personal.closed_form_heads import (
        ClosedFormHeads as ClosedFormHeads,
    )
    from fallow.training.personal.ditto import Ditto as Ditto
    from fallow.training.personal.dpfl import DPFL as DPFL
    from fallow.training.personal.fedavg_post import FedAvgPost as FedAvgPost
    from fallow.training.personal.fedrep import FedRep as FedRep
    from fallow.training.personal.fine_tuned import FedAvgFT as FedAvgFT
    from fallow.training.personal.fine_tuned import FedProxFT as FedProxFT
    from fallow.training.personal.knnper import KNNPer as KNNPer
    from fallow.training.personal.local import Local as Local
    from fallow.training.personal.perfedavg import PerFedAvg as PerFedAvg
    from fallow.training.personal.pfedgraph import PFedGraph as PFedGraph

MODULES = {
    "APFL": "fallow.training.personal.apfl",
    "ClosedFormHeads": "fallow.training.personal.closed_form_heads",
    "DPFL": "fallow.training.personal.dpfl",
    "Ditto": "fallow.training.personal.ditto",
    "FedAvgFT": "fallow.training.personal.fine_tuned",
    "FedAvgPost": "fallow.training.personal.fedavg_post",
    "FedProxFT": "fallow.training.personal.fine_tuned",
    "FedRep": "fallow.training.personal.fedrep",
    "KNNPer": "fallow.training.personal.knnper",
    "Local": "fallow.training.personal.local",
    "PFedGraph": "fallow.training.personal.pfedgraph",
    "PerFedAvg": "fallow.training.personal.perfedavg",
}
"""Class -> the module that defines it."""
__all__ = [*MODULES]

if not TYPE_CHECKING:
    __getattr__, __dir__ = import_when_used(__name__, MODULES)
