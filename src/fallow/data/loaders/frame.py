"""Import of a data frame of pandas, polars or Arrow, by the rules of a table in a file."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Unpack

from fallow.core.load_options import (
    KnownMarks,
    LoadKeywords,
    LoadOptions,
    build_options,
    check_applies,
    require_label,
    takes_options,
)
from fallow.core.suggestions import OF_FEDERATION, explain_function
from fallow.core.wording import compose
from fallow.data.dataset import Dataset, warn_of_findings
from fallow.data.loaders.extra_rows import warn_of_extra_rows
from fallow.data.loaders.features import is_frame
from fallow.data.loaders.open import from_sources
from fallow.data.loaders.table_files import Table, table_of_frame, with_index

if TYPE_CHECKING:
    import narwhals.stable.v2 as nw
    from narwhals.stable.v2.typing import IntoDataFrame


@explain_function(OF_FEDERATION)
@takes_options
def from_frame(
    df: IntoDataFrame,
    *,
    test: IntoDataFrame | None = None,
    name: str = "frame",
    **options: Unpack[LoadKeywords],
) -> Dataset:
    """Create a dataset from a data frame of pandas, polars or Arrow.

    The rules are those of a table in a file; an index of pandas with a name is a column.

    Parameters
    ----------
    df : pandas.DataFrame, polars.DataFrame or pyarrow.Table
        Training examples, also in another frame that narwhals supports.
    test : DataFrame, optional
        Test examples with the same columns.  None: 20 % of the labeled examples are held out.
    name : str
        Name of the dataset.
    **options
        `fallow.load` describes their effect on a table.

    Raises
    ------
    ValueError
        For a missing column (with the nearest name), text among numbers (with its row), an infinite
        feature (with its column and count), and the errors of `from_arrays`.

    Examples
    --------
    >>> import fallow as fl, pandas as pd
    >>> df = pd.DataFrame({"age": [31, 54, 70, 22], "sick": ["no", "yes", "yes", "no"]})
    >>> d = fl.from_frame(df, label="sick")
    >>> d.classes, d.columns
    (('no', 'yes'), ('age',))
    """
    chosen = build_options(**options)
    check_applies(name, "frame", chosen)
    require_label(name, chosen)
    frames = {name: _check_frame(df, name)}
    if test is not None:
        test_name = f"the test frame of {name}"
        frames[test_name] = _check_frame(test, test_name)
    known = {compose(str(column)) for column in frames[name].columns}
    sources = [
        partial(_read_frame, frame, what, known, chosen) for what, frame in frames.items()
    ]
    dataset = from_sources(sources, chosen, name)
    warn_of_findings(dataset, stacklevel=4)
    return dataset


def _read_frame(
    frame: nw.DataFrame[Any],
    name: str,
    known: Collection[str],
    options: LoadOptions,
    expected: KnownMarks,
) -> Table:
    """Read a frame; numbers in its texts have marks only if the options name one."""
    table = table_of_frame(frame, name, known, options.decimal)
    return replace(table, findings=tuple(warn_of_extra_rows(name, table.columns)))


def _check_frame(df: object, name: str) -> nw.DataFrame[Any]:
    """Return the frame through narwhals; ValueError for other objects and empty frames."""
    import narwhals.stable.v2 as nw

    if not is_frame(df):
        raise ValueError(
            f"{name} is a {type(df).__name__}, not a DataFrame; make one, such as "
            "pandas.DataFrame(columns) or pandas.read_csv(path)"
        )
    frame: nw.DataFrame[Any] = with_index(nw.from_native(df, eager_only=True))
    n_rows, n_columns = frame.shape
    if not n_rows or not n_columns:
        raise ValueError(f"{name} has {n_rows} rows and {n_columns} columns; give some")
    return frame
