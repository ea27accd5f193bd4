"""Personalised federated learning: one model per site."""

from fallow.personal.apfl import APFL
from fallow.personal.ditto import Ditto
from fallow.personal.dpfl import DPFL
from fallow.personal.fedavg_post import FedAvgPost
from fallow.personal.fedrep import FedRep
from fallow.personal.fine_tuned import FedAvgFT, FedProxFT
from fallow.personal.knnper import KNNPer
from fallow.personal.local import Local
from fallow.personal.perfedavg import PerFedAvg
from fallow.personal.pfedgraph import PFedGraph

__all__ = [
    "APFL",
    "DPFL",
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
