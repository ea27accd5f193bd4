"""Integrations: experiment trackers, Hugging Face, notebooks and scikit-activeml.

Each requires an optional package.  An error names the extra that installs it.  See
``docs/tracking.md``.
"""

from __future__ import annotations

from fallow.integrations.hugging_face import (
    from_datasets,
    labels_to_datasets,
    push_to_hub,
)
from fallow.integrations.scikit_activeml import FromScikitActiveML
from fallow.integrations.trackers import MLflow, TensorBoard, WandB
from fallow.study.callbacks import Callback, TrackedRun

__all__ = [
    "Callback",
    "FromScikitActiveML",
    "MLflow",
    "TensorBoard",
    "TrackedRun",
    "WandB",
    "from_datasets",
    "labels_to_datasets",
    "push_to_hub",
]
