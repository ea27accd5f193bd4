"""Where the public names live: each is imported when it is first used."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

METHODS = {
    "fallow.strategies": (
        *("ACSFW", "AHFAL", "BADGE", "BAIT", "BALD", "FALE", "FEAL", "IFAL", "KSAS"),
        *(
            "LCMD",
            "Chooser",
            "Complementary",
            "CoreSet",
            "Coverage",
            "Ensemble",
            "Entropy",
            "FairFAL",
            "Fisher",
        ),
        *("LeastConfidence", "LoGo", "Margin", "NoiseStability", "OracleHistogram"),
        *("Pivotal", "Prices", "Random", "Typical", "TypicalUnsure", "Typicality"),
        *("DropQuery", "MaxHerding", "ProbCover", "UncertaintyHerding"),
    ),
    "fallow.training": (
        *("KCFU", "ClosedForm", "Evidential", "FedAvg", "FedProx", "MaskedSolve"),
        *("Robust", "ServerSolve"),
    ),
    "fallow.training.personal": (
        *("APFL", "ClosedFormHeads", "DPFL", "Ditto", "FedAvgFT", "FedAvgPost"),
        *("FedProxFT", "FedRep", "KNNPer", "Local", "PFedGraph", "PerFedAvg"),
    ),
    "fallow.data": (
        *("IID", "ClassWindows", "Counts", "Dataset", "Dirichlet", "ExactDirichlet"),
        *("FedMADirichlet", "LongTail", "Natural", "Patho", "Shards", "TargetDirichlet"),
    ),
    "fallow.encoders": (
        *(
            "ONNX",
            "Convolution",
            "EfficientNetLite0",
            "Fourier",
            "Identity",
            "OpenCLIP",
            "SentenceTransformers",
        ),
        *("TabPFN", "Timm"),
    ),
    "fallow.api.models": (
        *("CNN4", "MLP", "DigitsCNN", "LeNet", "LeNetFEMNIST", "Linear", "MobileNetV2"),
        *("ResNet8",),
    ),
}
PARTS = {
    "fallow.api.datasets": ("from_arrays", "load"),
    "fallow.api.federation": ("Federation",),
    "fallow.api.runs": ("Run", "run"),
    "fallow.api.saved_model": ("LoadedModel", "load_model"),
    "fallow.api.selection": ("Selection", "Site", "select"),
    "fallow.data.own.frame": ("from_frame",),
    "fallow.api.studies": ("Study", "compare", "read_study", "write_report"),
    "fallow.api.adapters": ("PoolStrategy",),
    "fallow.api.estimators": ("FederatedClassifier", "FederatedRegressor"),
    "fallow.api.strategy": ("Strategy", "Training"),
    "fallow.core.contract": ("Contract",),
    "fallow.core.view": ("Picks", "Release", "View"),
    "fallow.encoders.sentence_transformers": ("texts_to_rows",),
    "fallow.core.training_config": (
        "Optimizer",
        "TrainingConfig",
        "Schedule",
        "TrainingStage",
    ),
    "fallow.privacy": ("Privacy",),
    "fallow.settings.recipe": ("Recipe",),
    "fallow.settings.spec": ("Spec",),
}

WHERE = {
    name: module
    for group in (METHODS, PARTS)
    for module, names in group.items()
    for name in names
}
"""Public name -> the module that has it."""


def __getattr__(name: str) -> Any:
    """`fallow`'s own: a public name, imported now and kept."""
    # The version is asked of what is installed, which takes longer than all else here.
    home = "fallow._version" if name == "__version__" else WHERE.get(name)
    if home is None:
        raise AttributeError(f"module 'fallow' has no attribute {name!r}{_hint(name)}")
    found = getattr(import_module(home), name)
    setattr(sys.modules["fallow"], name, found)
    return found


def _hint(name: str) -> str:
    """The public name that was probably meant; nothing for what Python itself looks for."""
    if name.startswith("_"):
        return ""
    from difflib import get_close_matches  # slow to import, and seldom needed

    known = {word.lower(): word for word in WHERE}
    close = get_close_matches(name.lower(), known, n=1, cutoff=0.7)
    if not close:
        return "; help(fallow) lists what it has"
    return f"; did you mean {known[close[0]]!r}?"


def __dir__() -> list[str]:
    return sorted({*vars(sys.modules["fallow"]), "__version__", *WHERE})
