"""Who answers queries: the only holders of hidden labels."""

from fallow.oracles.simulated import Simulated

__all__ = ["Simulated"]
