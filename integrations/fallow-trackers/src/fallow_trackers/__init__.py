"""Experiment trackers and Hugging Face for Fallow.

Each requires an optional package.  An error names the extra that installs it.
"""

from fallow_trackers.hugging_face import (
    from_datasets,
    labels_to_datasets,
    push_to_hub,
)
from fallow_trackers.trackers import MLflow, TensorBoard, WandB

__all__ = [
    "MLflow",
    "TensorBoard",
    "WandB",
    "from_datasets",
    "labels_to_datasets",
    "push_to_hub",
]
