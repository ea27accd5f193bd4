"""Training algorithms for a global model; personalized ones are in `fallow.training.personal`."""

from fallow.training.closed_form import ClosedForm
from fallow.training.evidential import Evidential
from fallow.training.fedavg import FedAvg
from fallow.training.fedprox import FedProx
from fallow.training.kcfu import KCFU
from fallow.training.masked_solve import MaskedSolve
from fallow.training.personal import (
    APFL,
    DPFL,
    ClosedFormHeads,
    Ditto,
    FedAvgFT,
    FedAvgPost,
    FedProxFT,
    FedRep,
    KNNPer,
    Local,
    PerFedAvg,
    PFedGraph,
)
from fallow.training.robust import Robust
from fallow.training.server_solve import ServerSolve

__all__ = [
    "APFL",
    "DPFL",
    "KCFU",
    "ClosedForm",
    "ClosedFormHeads",
    "Ditto",
    "Evidential",
    "FedAvg",
    "FedAvgFT",
    "FedAvgPost",
    "FedProx",
    "FedProxFT",
    "FedRep",
    "KNNPer",
    "Local",
    "MaskedSolve",
    "PFedGraph",
    "PerFedAvg",
    "Robust",
    "ServerSolve",
]


def __dir__() -> list[str]:
    return sorted(__all__)
