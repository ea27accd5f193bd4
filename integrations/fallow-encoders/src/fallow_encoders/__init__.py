"""Encoders that use pretrained networks of other packages.

Each requires an optional package.  An error names the extra that installs it.
"""

from fallow_encoders.onnx import ONNX
from fallow_encoders.open_clip import OpenCLIP
from fallow_encoders.sentence_transformers import SentenceTransformers
from fallow_encoders.tabpfn import TabPFN
from fallow_encoders.timm import Timm

__all__ = ["ONNX", "OpenCLIP", "SentenceTransformers", "TabPFN", "Timm"]
