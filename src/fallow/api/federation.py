"""A federation in memory: rows, and how they are spread over sites."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, final

import numpy as np

from fallow.api.datasets import open_path
from fallow.api.objects import Collected, plain
from fallow.core.build import build
from fallow.core.own import lend
from fallow.core.terms import list_keywords, refuse_keywords
from fallow.data import Dataset, partition_report
from fallow.data.partition import partitions
from fallow.experiment.rows import split_rows
from fallow.settings.recipe import Recipe, recipe_from
from fallow.settings.spec import Spec


@final
@dataclass(frozen=True, init=False, eq=False, repr=False)
class Federation:
    """Rows at sites: what `fallow.run` and `fallow.compare` take first.

    dataset: of `fallow.load`, `fallow.from_arrays` or `fallow.from_frame`, or the name or path of
    one, which is opened.
    partition: which rows each site holds, such as ``fallow.Dirichlet(alpha=0.1)``, or its name;
    None: the sites that the data names, else equal parts at random.
    sites: how many; 0 with the natural partition: every site that the data names.  None: 10, or
    every one that the data names.
    The partition is drawn from the seed of a run, so that a study sees several; `sizes` and
    `counts` show the one of a seed.

    >>> import fallow as fl
    >>> federation = fl.Federation(fl.load("digits"), fl.Dirichlet(alpha=0.1), sites=10)
    >>> federation
    Federation(digits, 1438 rows, 10 sites by dirichlet:alpha=0.1)
    >>> sum(federation.sizes(seed=0).values())
    1438
    """

    dataset: Dataset
    partition: Spec
    sites: int
    collected: Collected = field(init=False)

    def __init__(
        self,
        dataset: Dataset | str | Path,
        partition: object = None,  # an object, a class or its name, as `Spec.of` takes them
        sites: int | None = None,
        **unknown: Any,
    ) -> None:
        refuse_keywords("fl.Federation", unknown, list_keywords(Federation))
        path = dataset
        if isinstance(path, str | Path):
            path = open_path(Path(path))
        if not isinstance(path, Dataset):
            raise ValueError(
                f"a federation is made from a data set, not from {type(path).__name__}; make one "
                "with fl.load, fl.from_arrays or fl.from_frame"
            )
        rule = partition
        if rule is None:
            rule = "iid" if path.groups is None else "natural"
        collected = Collected()
        spec = collected.spec(rule, "partition")
        count = plain(sites)
        if count is None:
            # every one that the data names, or the usual number
            count = 0 if spec.name == "natural" else 10
        if isinstance(count, bool) or not isinstance(count, int) or count < 0:
            raise ValueError(f"sites is {sites!r}; give a whole number of sites")
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
        return f"Federation({self.dataset.name}, {rows} rows, {where} by {self.partition})"

    @property
    def settings(self) -> dict[str, object]:
        """The settings of a recipe that say the same."""
        partition = {"name": self.partition.name, "fields": dict(self.partition.fields)}
        return {"data": self.dataset.name, "partition": partition, "sites": self.sites}

    def rows(self, seed: int = 0) -> dict[str, np.ndarray[Any, Any]]:
        """Which training rows each site holds under ``seed``: site -> sorted row numbers."""
        recipe = recipe_from(self.settings, Recipe("world"))
        with lend(self.collected.classes):
            return split_rows(recipe, self.dataset, seed)

    def sizes(self, seed: int = 0) -> dict[str, int]:
        """Rows of each site under ``seed``."""
        return {site: len(rows) for site, rows in self.rows(seed).items()}

    def counts(self, seed: int = 0) -> Any:
        """A DataFrame of sites x classes: how many rows of each class a site holds.

        Raises ValueError where there are numbers to predict.
        """
        import pandas as pd

        if not self.dataset.classes:
            raise ValueError(f"{self.dataset.name} has numbers to predict, and no classes")
        rows = self.rows(seed)
        report = partition_report(
            self.dataset.y.numpy(), list(rows.values()), self.dataset.n_classes
        )
        return pd.DataFrame(
            report["matrix"], index=list(rows), columns=list(self.dataset.classes)
        )
