"""Label Studio and CVAT for sites of a Fallow federation."""

from fallow_labeling_tools.cvat import CVAT
from fallow_labeling_tools.label_studio_server import LabelStudio

__all__ = ["CVAT", "LabelStudio"]
