"""Fallow where people already are: trackers of experiments, Hugging Face, notebooks.

Each needs a package that an extra brings, and says which where it is missing: ``docs/tracking.md``.
"""

from __future__ import annotations

from fallow.integrations.hugging_face import (
    from_datasets,
    labels_to_datasets,
    push_to_hub,
)
from fallow.integrations.trackers import MLflow, TensorBoard, WandB
from fallow.study.callbacks import Callback, TrackedRun

__all__ = [
    "Callback",
    "MLflow",
    "TensorBoard",
    "TrackedRun",
    "WandB",
    "from_datasets",
    "labels_to_datasets",
    "push_to_hub",
]
