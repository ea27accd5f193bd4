"""Federated training methods: one model for all."""

from fallow.training.closed_form import ClosedForm
from fallow.training.evidential import Evidential
from fallow.training.fedavg import FedAvg
from fallow.training.fedprox import FedProx
from fallow.training.kcfu import KCFU
from fallow.training.masked_solve import MaskedSolve
from fallow.training.robust import Robust
from fallow.training.server_solve import ServerSolve

__all__ = [
    "KCFU",
    "ClosedForm",
    "Evidential",
    "FedAvg",
    "FedProx",
    "MaskedSolve",
    "Robust",
    "ServerSolve",
]
