"""Federated dataset: a dataset whose examples are distributed over sites."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, final

import numpy as np

from fallow.api.datasets import load
from fallow.api.objects import ParsedObjects, read_whole
from fallow.core.build import build
from fallow.core.names import lend
from fallow.core.optional import check_full_install
from fallow.core.suggestions import explain_constructor
from fallow.data import Dataset, partition_report
from fallow.data.partition import partitions
from fallow.data.partition.basic import natural_sites
from fallow.experiment.rows import split_rows
from fallow.settings.config import ExperimentConfig, config_from
from fallow.settings.spec import Spec


@explain_constructor
@final
@dataclass(frozen=True, init=False, eq=False, repr=False)
class Federation:
    """Federated dataset: a dataset and its partition into sites.

    The partition is drawn from the seed of a run, so that each seed of a study has its own.
    `sizes` and `counts` show the partition of one seed.

    Parameters
    ----------
    dataset : Dataset, str or Path
        Dataset, or the name or path of one.
    partition : partition, class or str, optional
        Distribution of examples over sites, such as ``fallow.Dirichlet(alpha=0.1)``.
        Default: the sites in the data, otherwise `fallow.IID`.
    sites : int, optional
        Number of sites.  Default: 10, or all sites in the data with `fallow.Natural`.

    Examples
    --------
    >>> import fallow as fl
    >>> federation = fl.Federation(fl.load("digits"), fl.Dirichlet(alpha=0.1), sites=10)
    >>> federation
    Federation(digits, 1438 examples, 10 sites by dirichlet:alpha=0.1)
    >>> sum(federation.sizes(seed=0).values())
    1438
    """

    dataset: Dataset
    partition: Spec
    sites: int
    collected: ParsedObjects = field(init=False)

    def __init__(
        self,
        dataset: Dataset | str | Path,
        partition: object = None,  # see `Spec.of`
        sites: int | None = None,
    ) -> None:
        path = dataset
        if isinstance(path, str | Path):
            path = load(path)
        if not isinstance(path, Dataset):
            raise ValueError(
                f"a federation is created from a dataset, not from {type(path).__name__}; "
                "create one with fl.load, fl.from_arrays or fl.from_frame"
            )
        rule = partition
        if rule is None:
            rule = "natural"
            if path.sites is None:
                rule = "iid"
        collected = ParsedObjects()
        spec = collected.spec(rule, "partition")
        count = 10
        if spec.name == "natural":
            count = 0  # all sites in the data
        if sites is not None:
            count = read_whole(sites, "sites", "give a whole number of sites", least=0)
        _check_sites(path, spec.name, count)
        object.__setattr__(self, "dataset", path)
        object.__setattr__(self, "partition", spec)
        object.__setattr__(self, "sites", count)
        object.__setattr__(self, "collected", collected)
        with lend(collected.classes):
            build(partitions, spec.name, **spec.fields)

    def __repr__(self) -> str:
        rows = len(self.dataset.x)
        where = "the sites it names,"
        if self.sites:
            where = f"{self.sites} sites"
        return (
            f"Federation({self.dataset.name}, {rows} examples, {where} by {self.partition})"
        )

    @property
    def settings(self) -> dict[str, object]:
        """Settings of an experiment configuration that describe this federated dataset."""
        partition = {"name": self.partition.name, "fields": dict(self.partition.fields)}
        return {"data": self.dataset.name, "partition": partition, "sites": self.sites}

    def rows(self, seed: int = 0) -> dict[str, np.ndarray[Any, Any]]:
        """Return the sorted indices of the training examples of each site under ``seed``.

        Parameters
        ----------
        seed : int, default=0
            Seed of the partition.
        """
        config = config_from(self.settings, ExperimentConfig("simulation"))
        with lend(self.collected.classes):
            return split_rows(config, self.dataset, seed)

    def sizes(self, seed: int = 0) -> dict[str, int]:
        """Return the number of examples of each site under ``seed``.

        Parameters
        ----------
        seed : int, default=0
            Seed of the partition.
        """
        return {site: len(rows) for site, rows in self.rows(seed).items()}

    def counts(self, seed: int = 0) -> Any:
        """Return a DataFrame of sites x classes with the number of examples of each class.

        Parameters
        ----------
        seed : int, default=0
            Seed of the partition.

        Raises
        ------
        ValueError
            If the task is regression.
        """
        check_full_install("fl.Federation.counts")
        import pandas as pd

        if not self.dataset.classes:
            raise ValueError(
                f"{self.dataset.name} is a regression task, and has no classes"
            )
        rows = self.rows(seed)
        report = partition_report(
            self.dataset.y.numpy(), list(rows.values()), self.dataset.n_classes
        )
        return pd.DataFrame(
            report["matrix"], index=list(rows), columns=list(self.dataset.classes)
        )


def _check_sites(dataset: Dataset, partition: str, count: int) -> None:
    """Raise ValueError if the data cannot have this number of sites."""
    if partition == "natural":
        natural_sites(dataset.sites, count)
        return
    if count == 0:
        raise ValueError("sites is 0; give the number of sites, 1 or more")
    if count > len(dataset.x):
        raise ValueError(
            f"sites is {count} and {dataset.name} has {len(dataset.x)} training examples; give at "
            "most one site for each example"
        )
