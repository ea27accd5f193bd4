"""Federated training methods: one model for all."""

from fallow.training.fedavg import FedAvg
from fallow.training.fedprox import FedProx

__all__ = ["FedAvg", "FedProx"]
