"""Import of a data frame of pandas, polars or Arrow, by the rules of a table in a file."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from fallow.core.suggestions import OF_FEDERATION, explain_function
from fallow.data.dataset import Dataset, warn_of_findings
from fallow.data.loaders.features import is_frame
from fallow.data.loaders.labels import TaskChoice
from fallow.data.loaders.open import from_assembled
from fallow.data.loaders.table import Wanted, read_table
from fallow.data.loaders.table_files import table_of_frame

if TYPE_CHECKING:
    import narwhals.stable.v2 as nw
    from narwhals.stable.v2.typing import IntoDataFrame


@explain_function(OF_FEDERATION)
def from_frame(
    df: IntoDataFrame,
    label: str,
    site: str | None = None,
    id: str | None = None,
    *,
    group: str | None = None,
    test: IntoDataFrame | None = None,
    drop: Sequence[str] = (),
    columns: Sequence[str] = (),
    task: TaskChoice = "auto",
    classes: Sequence[str] = (),
    drop_rows: bool = False,
    merge: bool = False,
    name: str = "frame",
) -> Dataset:
    """Create a dataset from a data frame of pandas, polars or Arrow.

    The rules are those of a table in a file; the index is ignored.

    Parameters
    ----------
    df : pandas.DataFrame, polars.DataFrame or pyarrow.Table
        Training examples, also in another frame that narwhals supports.
    label : str
        Column of labels.  Text, integers and Booleans are classes (sorted); other numbers are
        regression targets.  A missing value is unlabeled.
    site : str, optional
        Column with the site ID.
    group : str, optional
        Column with the group, such as the patient, of several examples.  A group is never divided
        between training, validation and test examples, or between the sites of a partition.
    id : str, optional
        Column with names of examples.  None: the column "id", if present.
    test : DataFrame, optional
        Test examples with the same columns.  None: 20 % of the labeled examples are held out.
    drop : sequence of str
        Columns that are not features.
    columns : sequence of str
        Features.  Empty: every other column except ``drop``.  Numbers and Booleans are used as they
        are; text and categories are one-hot encoded, with names ``column=level``.  Columns with
        names, counters, dates, free text or constant values, and empty ones, are omitted unless
        listed here; ``notes`` mentions them.  Free text that is listed becomes hashed n-grams, for
        the encoder `HashedText`.
    task : {"auto", "classification", "regression"}
        Task, if integers are regression targets.
    classes : sequence of str
        Names of the classes, in order.
    drop_rows : bool
        Omit examples with missing or infinite features.  False: the sites impute missing cells
        together, from aggregates over their training examples, and mark them with indicator
        columns.
    merge : bool
        Make one name of classes, sites or texts that differ only in case, spaces, zeros or form of
        Unicode: the most frequent one.  False: `Dataset.findings` warns of them.
    name : str
        Name of the dataset.

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
    for column in (label, site, group, id):
        if not isinstance(column, Hashable):
            raise ValueError(
                f"{column!r} is a {type(column).__name__}; give the name of a column"
            )
    wanted = Wanted(
        label=str(label),
        site=None if site is None else str(site),
        group=None if group is None else str(group),
        id=None if id is None else str(id),
        drop=tuple(map(str, drop)),
        only=tuple(map(str, columns)),
        drop_rows=drop_rows,
        merge=merge,
    )
    frames = {name: _check_frame(df, name)}
    if test is not None:
        test_name = f"the test frame of {name}"
        frames[test_name] = _check_frame(test, test_name)
    known = set(map(str, frames[name].columns))
    sources = [
        partial(table_of_frame, frame, what, known=known) for what, frame in frames.items()
    ]
    dataset = from_assembled(
        read_table(sources, wanted),
        has_test=test is not None,
        name=name,
        task=task,
        classes=tuple(classes),
        merge=merge,
    )
    warn_of_findings(dataset, stacklevel=4)
    return dataset


def _check_frame(df: object, name: str) -> nw.DataFrame[Any]:
    """Return the frame through narwhals; ValueError for other objects and empty frames."""
    import narwhals.stable.v2 as nw

    if not is_frame(df):
        raise ValueError(
            f"{name} is a {type(df).__name__}, not a DataFrame; make one, such as "
            "pandas.DataFrame(columns) or pandas.read_csv(path)"
        )
    frame: nw.DataFrame[Any] = nw.from_native(df, eager_only=True)
    n_rows, n_columns = frame.shape
    if not n_rows or not n_columns:
        raise ValueError(f"{name} has {n_rows} rows and {n_columns} columns; give some")
    return frame
