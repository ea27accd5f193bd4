"""Data sheet of a dataset: `fallow.describe`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, final

from fallow.api.datasets import load
from fallow.api.federation import Federation
from fallow.core.suggestions import explain_constructor
from fallow.data import Dataset
from fallow.data.sheet import SheetRecord, build_sheet, format_sheet
from fallow.report.sheet import render_sheet, write_sheet

if TYPE_CHECKING:
    import pandas as pd


def describe(data: Dataset | str | Path) -> DataSheet:
    """Describe your data on one page, to check that they were read as you meant.

    The page lists guesses and findings, columns with their values at each site, pictures, and
    labels by site.  It contains examples, so it is for whoever may see the data.
    `describe_sites` describes sites by counts alone.

    Parameters
    ----------
    data : Dataset, str or Path
        Dataset, or its name or path as in `load`.

    Returns
    -------
    DataSheet

    Raises
    ------
    ValueError
        If the data are a federated dataset or cannot be loaded.

    Examples
    --------
    >>> import fallow as fl
    >>> sheet = fl.describe("iris")
    >>> sheet.record.facts["classes"]
    {'setosa': 50, 'versicolor': 50, 'virginica': 50}
    """
    if isinstance(data, Federation):
        raise ValueError(
            "data is a Federation; give its dataset, or call fl.describe_sites(federation) for "
            "counts of its sites"
        )
    if isinstance(data, Dataset):
        return DataSheet(build_sheet(data))
    return DataSheet(build_sheet(load(data), folder=Path(data)))


@final
@explain_constructor
@dataclass(frozen=True, repr=False)
class DataSheet:
    """Data sheet of a dataset; the result of `describe`.

    Attributes
    ----------
    record : SheetRecord
        Values of the sheet, as ``fallow describe --json`` prints them.

    Examples
    --------
    >>> import fallow as fl
    >>> sheet = fl.describe("iris")
    >>> sheet
    DataSheet(iris: 5 columns)
    >>> sheet.to_frame()["missing"].tolist()
    [0, 0, 0, 0, 0]
    """

    record: SheetRecord

    def __repr__(self) -> str:
        return f"DataSheet({self.record.name}: {len(self.record.columns)} columns)"

    def __str__(self) -> str:
        return "\n".join(format_sheet(self.record))

    def _repr_html_(self) -> str:
        from html import escape

        page = escape(render_sheet(self.record), quote=True)
        return f'<iframe sandbox srcdoc="{page}" style="width:100%;height:40rem"></iframe>'

    def to_frame(self) -> pd.DataFrame:
        """Return a DataFrame with one row for each column of the table."""
        import pandas as pd

        rows = []
        for column in self.record.columns:
            rows.append(
                {
                    "column": column.name,
                    "kind": column.kind,
                    "role": column.role,
                    "unit": column.unit,
                    "missing": column.missing,
                    "low": column.low,
                    "median": column.median,
                    "high": column.high,
                    "levels": column.levels,
                    "reason": column.reason,
                }
            )
        return pd.DataFrame(rows)

    def to_html(self, path: str | Path | None = None) -> str:
        """Return the page, and write it to a file if wanted.

        Parameters
        ----------
        path : str or Path, optional
            File of the page.
        """
        if path is not None:
            write_sheet(self.record, Path(path))
        return render_sheet(self.record)
