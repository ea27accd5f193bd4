"""Personalized federated learning: one model per site."""

from fallow.training.personal.apfl import APFL
from fallow.training.personal.closed_form_heads import ClosedFormHeads
from fallow.training.personal.ditto import Ditto
from fallow.training.personal.dpfl import DPFL
from fallow.training.personal.fedavg_post import FedAvgPost
from fallow.training.personal.fedrep import FedRep
from fallow.training.personal.fine_tuned import FedAvgFT, FedProxFT
from fallow.training.personal.knnper import KNNPer
from fallow.training.personal.local import Local
from fallow.training.personal.perfedavg import PerFedAvg
from fallow.training.personal.pfedgraph import PFedGraph

__all__ = [
    "APFL",
    "DPFL",
    "ClosedFormHeads",
    "Ditto",
    "FedAvgFT",
    "FedAvgPost",
    "FedProxFT",
    "FedRep",
    "KNNPer",
    "Local",
    "PFedGraph",
    "PerFedAvg",
]


def __dir__() -> list[str]:
    return sorted(__all__)
