"""Training algorithms for a global model; personalized ones are in `fallow.training.personal`."""

from typing import TYPE_CHECKING

from fallow.core.exports import import_when_used

if TYPE_CHECKING:
    from fallow.training.boosted_trees import BoostedTrees as BoostedTrees
    from fallow.training.closed_form import ClosedForm as ClosedForm
    from fallow.training.closed_form_labels import ClosedFormLabels as ClosedFormLabels
    from fallow.training.evidential import Evidential as Evidential
    from fallow.training.fedavg import FedAvg as FedAvg
    from fallow.training.fedprox import FedProx as FedProx
    from fallow.training.kcfu import KCFU as KCFU
    from fallow.training.masked_solve import MaskedSolve as MaskedSolve
    from fallow.training.no_training import NoTraining as NoTraining
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
    from fallow.training.robust import Robust as Robust
    from fallow.training.scaffold import Scaffold as Scaffold
    from fallow.training.server_solve import ServerSolve as ServerSolve

MODULES = {
    "APFL": "fallow.training.personal.apfl",
    "BoostedTrees": "fallow.training.boosted_trees",
    "ClosedForm": "fallow.training.closed_form",
    "ClosedFormHeads": "fallow.training.personal.closed_form_heads",
    "ClosedFormLabels": "fallow.training.closed_form_labels",
    "DPFL": "fallow.training.personal.dpfl",
    "Ditto": "fallow.training.personal.ditto",
    "Evidential": "fallow.training.evidential",
    "FedAvg": "fallow.training.fedavg",
    "FedAvgFT": "fallow.training.personal.fine_tuned",
    "FedAvgPost": "fallow.training.personal.fedavg_post",
    "FedProx": "fallow.training.fedprox",
    "FedProxFT": "fallow.training.personal.fine_tuned",
    "FedRep": "fallow.training.personal.fedrep",
    "KCFU": "fallow.training.kcfu",
    "KNNPer": "fallow.training.personal.knnper",
    "Local": "fallow.training.personal.local",
    "MaskedSolve": "fallow.training.masked_solve",
    "NoTraining": "fallow.training.no_training",
    "PFedGraph": "fallow.training.personal.pfedgraph",
    "PerFedAvg": "fallow.training.personal.perfedavg",
    "Robust": "fallow.training.robust",
    "Scaffold": "fallow.training.scaffold",
    "ServerSolve": "fallow.training.server_solve",
}
"""Class -> the module that defines it."""
__all__ = [*MODULES]

if not TYPE_CHECKING:
    __getattr__, __dir__ = import_when_used(__name__, MODULES)
