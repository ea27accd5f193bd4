"""Fallow where people already are: trackers of experiments, Hugging Face, notebooks.

Each needs a package that an extra brings, and says which where it is missing: ``docs/integrations.md``.
"""

from __future__ import annotations

from fallow.integrations.callbacks import Callback, TrackedRun
from fallow.integrations.trackers import MLflow, TensorBoard, WandB

__all__ = ["Callback", "MLflow", "TensorBoard", "TrackedRun", "WandB"]
