"""Description of a federated dataset before a study, by the counts that real sites send."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast, final

import numpy as np
import torch
from torch import Tensor, nn

from fallow.api.federation import Federation
from fallow.core.ask import Ask
from fallow.core.disclosure import Disclosure
from fallow.core.methods import Methods
from fallow.core.missing import find_text_columns, name_buckets
from fallow.core.model_vectors import Layout
from fallow.core.optional import check_full_install
from fallow.core.types import SiteId
from fallow.core.wording import count_noun
from fallow.data import Dataset
from fallow.data.dataset import take_rows
from fallow.engine import row_loss
from fallow.engine.column_counts import DescribedColumn
from fallow.engine.executors import build_executor
from fallow.experiment.event_log import EventLog
from fallow.measurements.description import (
    DESCRIBE,
    MOST_COLUMNS,
    ColumnDescription,
    CountFacts,
    Describe,
    Description,
    list_array_columns,
    list_table_columns,
)
from fallow.privacy.secure_sum import SecureSum
from fallow.privacy.settings import Privacy
from fallow.report.render import Article, Page, parts_of, render_page
from fallow.sites import LocalSite, RunComponents
from fallow.sites.in_process import InProcessChannel
from fallow.sites.store import Label
from fallow.storage.files import write_whole

if TYPE_CHECKING:
    import pandas as pd

TITLE = "Data of the sites"


def describe_sites(
    federation: Federation | Dataset | str | Path,
    *,
    seed: int = 0,
    secure_sum: bool = False,
) -> DataDescription:
    """Describe the data of each site, from counts that a real site would send.

    Numeric columns have counts, missing values, quantiles and a histogram, categorical columns and
    labels the counts of their levels, and each column its drift between sites.  Images and other
    arrays are described by mean and standard deviation of each channel.  `describe` shows your own
    data in more detail.

    Parameters
    ----------
    federation : Federation, Dataset, str or Path
        Federated dataset, or a dataset, or the name or path of one.
    seed : int, default=0
        Seed of the partition.
    secure_sum : bool, default=False
        Whether only sums of all sites are known.  Sites and drift are then not described.

    Returns
    -------
    DataDescription

    Examples
    --------
    >>> import fallow as fl
    >>> federation = fl.Federation(fl.load("digits"), fl.Dirichlet(alpha=0.1), sites=3)
    >>> described = fl.describe_sites(federation)
    >>> described
    DataDescription(4 columns, 3 sites)
    >>> label = described.to_frame().query("column == 'label' and site == ''")
    >>> int(label["values"].iloc[0])
    1438
    """
    check_full_install("fl.describe_sites")
    simulation = federation
    if not isinstance(simulation, Federation):
        simulation = Federation(simulation)
    dataset = simulation.dataset
    label = DescribedColumn("label", dataset.classes)
    columns, left_out = list_columns(dataset)
    rows = {site: torch.from_numpy(at) for site, at in simulation.rows(seed).items()}
    privacy = Privacy(secure_sum=secure_sum)
    store = EventLog()
    model = nn.Linear(1, 1)
    layout = Layout.of(model)
    members: dict[SiteId, LocalSite] = {}
    for site, at in rows.items():
        own = Describe(columns, label, secure_sum, tests=_find_tests(simulation, at))
        parts = RunComponents(
            model=model,
            layout=layout,
            methods=cast(Methods, {"describe": own}),
            classes=dataset.n_classes,
            seed=seed,
            fresh=lambda stream: {},
            privacy=privacy,
            noise="seeded",
        )
        labels = dataset.y[at]
        known = dataset.is_labeled[at].nonzero().flatten().tolist()
        store.write(site, [Label(row, float(labels[row]), -1) for row in known])
        members[site] = LocalSite(site, take_rows(dataset.x, at), parts, store)
    executor = build_executor("loop", model, layout, row_loss(dataset.task))
    method = Describe(columns, label, secure_sum, left_out=left_out)
    masking = SecureSum() if secure_sum else None
    ask = Ask(
        channel=InProcessChannel(members, executor),
        event_log=store,
        disclosure=Disclosure(),
        key=DESCRIBE,
        owner="describe",
        masking=masking,
    )
    return DataDescription(method.describe(ask), tuple(members))


def list_columns(
    dataset: Dataset,
) -> tuple[tuple[DescribedColumn, ...], tuple[str, ...]]:
    """Return the described columns of a dataset, and the names of those that are left out."""
    features = dataset.columns
    if not features:
        return list_array_columns(tuple(dataset.x.shape[1:])), ()
    texts = find_text_columns(features)
    if dataset.reading is not None and dataset.reading.columns:
        used = [column for column in dataset.reading.columns if column.is_feature]
        kinds = [column for column in used if column.kind != "text"]
        levels = [(column.name, column.values) for column in kinds]
    else:
        others = {mark for mark, _ in dataset.missing.marks} if dataset.missing else set()
        for column in texts:
            others |= {*name_buckets(column)}
        levels = [(name, ()) for name in features if name not in others]
    further = [name for name, _ in levels[MOST_COLUMNS:]]
    return list_table_columns(levels, features), (*texts, *further)


def _find_tests(federation: Federation, rows: Tensor) -> Tensor | None:
    """Return the labels of the test examples of a natural site, or None for other sites."""
    dataset = federation.dataset
    is_natural = federation.partition.name == "natural"
    if not is_natural or dataset.sites is None or dataset.sites_test is None:
        return None
    return dataset.y_test[dataset.sites_test == dataset.sites[int(rows[0])]]


@final
@dataclass(frozen=True, repr=False)
class DataDescription:
    """Description of the data of all sites; the result of `describe_sites`.

    Attributes
    ----------
    facts : dict
        Counts, quantiles and drift of each column, as ``fallow coordinate describe --json`` prints
        them.
    sites : tuple of str
        Names of the sites.

    Examples
    --------
    >>> import fallow as fl
    >>> federation = fl.Federation(fl.load("digits"), fl.IID(), sites=3)
    >>> list(fl.describe_sites(federation).to_frame())[:5]
    ['column', 'site', 'values', 'missing', 'missing_share']
    """

    facts: Description
    sites: tuple[SiteId, ...]

    def __repr__(self) -> str:
        columns = count_noun(len(self.facts["columns"]), "column")
        sites = count_noun(len(self.sites), "site")
        return f"DataDescription({columns}, {sites})"

    def to_frame(self) -> pd.DataFrame:
        """Return a DataFrame with one row for each column and site; site "" is all sites."""
        import pandas as pd

        return pd.DataFrame(
            [
                _list_figures(column, facts)
                for column in self.facts["columns"]
                for facts in (column["all"], *column["sites"])
            ]
        )

    def to_html(self, path: str | Path | None = None) -> str:
        """Return the description as a page, and write it to a file if wanted.

        Parameters
        ----------
        path : str or Path, optional
            File of the page.
        """
        from fallow.report.description import description_blocks

        blocks = description_blocks(self.facts, "data")
        article = Article("data", TITLE, parts=parts_of("data", [("Columns", blocks)]))
        text = render_page(Page(TITLE, [article]))
        if path is not None:
            write_whole(Path(path), text.encode())
        return text


def _list_figures(column: ColumnDescription, facts: CountFacts) -> dict[str, Any]:
    """Return the figures of a column at a site as a row of a table."""
    values = facts["values"]
    rows = values + facts["missing"]
    row: dict[str, Any] = {
        "column": column["name"],
        "site": facts["site"],
        "values": values,
        "missing": facts["missing"],
        "missing_share": np.divide(facts["missing"], rows or np.nan),
        "drift": facts["drift"],
        "drift_by_chance": facts["chance"],
    }
    for item in facts["quantiles"]:
        name = f"{100 * item['share']:g}%"
        row |= {name: item["value"], f"{name} low": item["low"]}
        row[f"{name} high"] = item["high"]
    if column["levels"]:
        row["levels"] = dict(zip(column["levels"], facts["counts"], strict=True))
    return row
