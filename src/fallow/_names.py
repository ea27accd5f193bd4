"""Modules of the public names, which are imported on first use."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

from fallow._index import CLASSES

PARTS: dict[str, tuple[tuple[str, tuple[str, ...]], ...]] = {
    "Datasets": (
        ("fallow.api.datasets", ("load", "from_arrays")),
        ("fallow.data.loaders.frame", ("from_frame",)),
        ("fallow.data", ("Dataset",)),
        ("fallow.api.federation", ("Federation",)),
        ("fallow.api.sheet", ("describe", "DataSheet")),
        ("fallow.api.description", ("describe_sites", "DataDescription")),
        ("fallow.encoders.texts", ("texts_to_rows",)),
    ),
    "Experiments": (
        ("fallow.api.runs", ("run", "Run")),
        ("fallow.api.studies", ("compare", "Study", "read_study", "write_report")),
        ("fallow.api.saved_model", ("load_model", "LoadedModel")),
    ),
    "Experiment configuration": (
        ("fallow.settings.config", ("ExperimentConfig",)),
        ("fallow.settings.spec", ("Spec",)),
        (
            "fallow.core.training_config",
            ("TrainingConfig", "TrainingStage", "Optimizer", "Schedule"),
        ),
        ("fallow.privacy.settings", ("Privacy",)),
    ),
    "Selection from arrays": (
        ("fallow.api.selection", ("select", "Site", "Selection")),
        ("fallow.integrations", ("FromScikitActiveML",)),
    ),
    "Custom algorithms": (
        ("fallow.api.strategy", ("Strategy", "Training")),
        ("fallow.core.contract", ("Contract",)),
        ("fallow.core.view", ("View", "SelectedExamples", "Release")),
    ),
}
"""Other public names, by section of the overview and module."""

WHERE = {name: module for module, names in CLASSES.items() for name in names} | {
    name: module for parts in PARTS.values() for module, names in parts for name in names
}
"""Public name -> the module that has it."""


NAMESPACES = {
    "encoders": "fallow.encoders",
    "models": "fallow.models",
    "partitions": "fallow.data.partition.partitions",
    "strategies": "fallow.strategies",
    "training": "fallow.training",
}
"""Namespace -> the package or module that it is."""

LISTED = (
    "AHFAL",
    "BADGE",
    "ClosedForm",
    "Contract",
    "CoreSet",
    "Dataset",
    "Dirichlet",
    "Ditto",
    "Entropy",
    "FALE",
    "FedAvg",
    "FedProx",
    "Federation",
    "Fourier",
    "IID",
    "LeastConfidence",
    "Linear",
    "MLP",
    "Margin",
    "Natural",
    "Privacy",
    "Random",
    "Run",
    "SelectedExamples",
    "Site",
    "Strategy",
    "Study",
    "Training",
    "TypicalUnsure",
    "View",
)
"""The classes that completion offers at the top; the others are in the namespaces."""

TERMS = {
    "Aggregator": "fl.FedAvg",
    "Client": "fl.Site",
    "DataLoader": "fl.load",
    "FedAL": "fl.run",
    "Learner": "fl.run",
    "Model": "fl.MLP",
    "NonIID": "fl.Dirichlet",
    "Partitioner": "fl.Dirichlet",
    "PoolBasedStrategy": "fl.Strategy",
    "Query": "fl.Strategy",
    "QueryStrategy": "fl.Strategy",
    "Sampler": "fl.Strategy",
    "Server": "fl.run",
    "Simulation": "fl.run",
    "clients": "fl.Federation(dataset, partition, sites=10)",
    "evaluate": "fl.run",
    "fit": "fl.run",
    "load_dataset": "fl.load",
    "plot": "fl.Study.plot",
    "query": "fl.select",
    "queries": "fl.strategies",
    "simulate": "fl.run",
    "start_simulation": "fl.run",
    "teach": "fl.run",
    "train": "fl.run",
    "train_test_split": "fl.from_arrays",
}
"""Term of the field or of another library -> name in Fallow."""


def __getattr__(name: str) -> Any:
    """A public name of `fallow`, imported when it is first used."""
    if name in NAMESPACES:
        value = import_module(NAMESPACES[name])
    else:
        module = "fallow.core.version" if name == "__version__" else WHERE.get(name)
        if module is None:
            raise AttributeError(f"module 'fallow' has no attribute {name!r}{_hint(name)}")
        value = getattr(import_module(module), name)
    setattr(sys.modules["fallow"], name, value)
    return value


def _hint(name: str) -> str:
    """Return the public name that was probably meant, or "" for a name that Python itself looks up."""
    if name.startswith("_"):
        return ""
    terms = {term.lower(): meant for term, meant in TERMS.items()}
    meant = TERMS.get(name) or terms.get(name.lower())
    if meant is not None:
        return f"; did you mean {meant}?"
    from difflib import get_close_matches  # slow to import, and seldom needed

    known = {word.lower(): word for word in (*WHERE, *NAMESPACES)}
    close = get_close_matches(name.lower(), known, n=1, cutoff=0.7)
    if not close:
        return "; help(fallow) lists its names"
    return f"; did you mean {known[close[0]]!r}?"


def __dir__() -> list[str]:
    """Functions, the classes that are used most, and namespaces."""
    functions = [name for name in WHERE if name[0].islower()]
    return sorted({*functions, *LISTED, *NAMESPACES})
