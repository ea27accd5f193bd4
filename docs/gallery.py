"""Write one page per query strategy from its contract and the measured results.

Sources: the contracts, the scores of the benchmark (`studies/benchmark.csv`), the cost of a
selection (`studies/costs.csv`), tables of other pages in `studies/`, and `algorithms.toml`, which
states when each strategy helps and when it does not.
"""

from __future__ import annotations

import csv
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
from charts import Curve, Difference, draw_curves, draw_differences

from fallow.configs.few_labels import FEDAVG
from fallow.configs.find import load_configs
from fallow.core.contract import Contract
from fallow.core.names import spell_class, summarize
from fallow.settings.classes import classes_of
from fallow.study.benchmark import TaskLine, task_lines

HERE = Path(__file__).resolve().parent
STUDIES = HERE.parent / "studies"
REFERENCE = "random"
FIRST_TASK = "benchmark/digits"
"""Task of the charts, the same for all strategies."""

MANY_LABELS = "classification.md"
"""Four settings with 10 % of the labels or more."""
SOURCE_OF_MANY = "Source: ``studies/classification.md``."
SOURCE_OF_FEW = "Source: ``studies/benchmark.md``."

ENTRY = r"(?P<value>[+-]?[\d.,]+)(?: ± (?P<spread>[\d.]+))?"
INTERVAL = re.compile(r"([+-][\d.]+) \[([+-][\d.]+), ([+-][\d.]+)\]")


@dataclass(frozen=True)
class TableCurve:
    """Table of results with numbers of labels as columns, of which two rows are drawn.

    ``columns``: number of columns, from the first one with numbers.
    """

    page: str
    heading: str
    row: str
    beside: str
    score: str
    caption: str
    columns: int = 4


def on_kegg(row: str, beside: str = "random [1x25]") -> TableCurve:
    """Return the table of errors of a rival on one dataset."""
    caption = "Mean squared error on the table kegg, ten seeds; lower is better"
    return TableCurve(
        page="fale.md",
        heading="### kegg",
        row=row,
        beside=beside,
        score="mean squared error",
        caption=caption,
    )


FROM_TABLES: dict[str, TableCurve] = {
    "acs-fw": on_kegg("ACS-FW [1x25]"),
    "bait": on_kegg("BAIT [1x25]"),
    "lcmd": on_kegg("LCMD [1x25]"),
    "fale": TableCurve(
        page="fale.md",
        heading="### protein",
        row="**FALE** [server]",
        beside="random [server]",
        score="mean squared error",
        caption="Mean squared error on the table protein, the same solver for both, ten seeds; lower "
        "is better",
    ),
}
"""Strategies without a curve in the benchmark, and the table of their curve."""

RENAMED = {
    "feal": "feal@training=evidential",
    "noise-stability": "noise_stability:draws=10",
}
"""Settings of the table with many labels."""


@dataclass(frozen=True)
class Facts:
    """Data from which all pages are generated."""

    words: Mapping[str, Mapping[str, str]]  # when it helps, and when not
    scores: pd.DataFrame  # of the benchmark
    lines: Mapping[str, Sequence[TaskLine]]  # of each of its tasks
    many: Mapping[
        str, Mapping[str, tuple[float, float, float]]
    ]  # setting -> row -> interval
    costs: Mapping[str, Mapping[str, str]]


def write_gallery(folder: Path) -> None:
    """Write ``index.rst`` and a page for each strategy; leave unchanged files alone."""
    folder.mkdir(exist_ok=True)
    facts = read_facts()
    gallery = dict(
        sorted((spell_class(cls), cls) for cls in classes_of("strategy").values())
    )
    pages = {name: strategy_page(name, gallery[name], facts) for name in gallery}
    pages["index"] = index_page(gallery, facts)
    for page, text in pages.items():
        file = folder / f"{page}.rst"
        if not file.exists() or file.read_text(encoding="utf-8") != text:
            file.write_text(text, encoding="utf-8")
    for file in folder.glob("*.rst"):
        if file.stem not in pages:  # of a strategy that is gone
            file.unlink()


# -- what is read ---------------------------------------------------------------------------


def read_facts() -> Facts:
    """Read all data of the pages."""
    words = tomllib.loads((HERE / "algorithms.toml").read_text(encoding="utf-8"))
    scores = pd.read_csv(STUDIES / "benchmark.csv")
    scores = scores[scores["task"].isin(load_configs())].copy()  # others left the catalog
    scores["strategy"] = [plain_name(strategy) for strategy in scores["strategy"]]
    lines = {}
    for task in scores["task"].unique():
        classes = count_classes(str(task))
        lines[str(task)] = task_lines(scores[scores["task"] == task], REFERENCE, classes)
    return Facts(
        words=words,
        scores=scores,
        lines=lines,
        many=read_many_labels(),
        costs=read_costs(),
    )


def plain_name(strategy: str) -> str:
    """Return the name of a strategy's page.

    >>> plain_name("core_set"), plain_name("max_herding@seeds=3")
    ('core-set', 'max-herding')
    """
    return strategy.partition("@")[0].replace("_", "-")


def count_classes(task: str) -> int:
    """Return the number of classes of a task."""
    from fallow.catalog import find_entry

    return find_entry(load_configs()[task].data).classes


def read_costs() -> dict[str, dict[str, str]]:
    """Return the cost of one selection by strategy, from `studies/costs.csv`."""
    with (STUDIES / "costs.csv").open(newline="", encoding="utf-8") as file:
        return {row["strategy"]: row for row in csv.DictReader(file)}


def read_many_labels() -> dict[str, dict[str, tuple[float, float, float]]]:
    """Return differences from random sampling and intervals, by setting and strategy."""
    many_labels: dict[str, dict[str, tuple[float, float, float]]] = {}
    text = (STUDIES / MANY_LABELS).read_text(encoding="utf-8")
    for section in re.split(r"^## ", text, flags=re.MULTILINE)[1:]:
        setting, _, rest = section.partition("\n")
        rows = {}
        for cells in read_rows(rest):
            interval = INTERVAL.search("|".join(cells))
            if interval is not None and len(cells) == 8:
                low = float(interval[2])
                high = float(interval[3])
                rows[cells[0]] = (float(interval[1]), low, high)
        if len(rows) > 10:  # one of the four tables of all strategies
            many_labels[setting] = rows
    return many_labels


def read_rows(text: str) -> list[list[str]]:
    """Return the cells of each row of a Markdown table."""
    rows = []
    for line in text.splitlines():
        if line.startswith("|"):
            rows.append([cell.strip() for cell in line.strip().strip("|").split("|")])
    return rows


def read_table_curve(table: TableCurve, name: str) -> list[Curve]:
    """Return the curves of a strategy and of its reference.

    Raises ValueError where the page has no such table or row any more.
    """
    text = (STUDIES / table.page).read_text(encoding="utf-8")
    _, table_curve, rest = text.partition(f"\n{table.heading}")
    if not table_curve:
        raise ValueError(f"{table.page} has no heading {table.heading!r}")
    section = re.split(r"\n##+ ", rest)[0]
    rows = read_rows(section)
    labels = []
    for cell in rows[0][1 : table.columns + 1]:
        number = re.search(r"[\d,]+", cell)
        if number is None:
            raise ValueError(
                f"{table.page}, {table.heading}: {cell!r} is no number of labels"
            )
        labels.append(float(number[0].replace(",", "")))
    by_name = {row[0]: row[1 : table.columns + 1] for row in rows}
    curves = []
    for row, title in ((table.row, name), (table.beside, table.beside)):
        if row not in by_name:
            raise ValueError(f"{table.page}, {table.heading}: there is no row {row!r}")
        read = [re.match(ENTRY, cell) for cell in by_name[row]]
        values = [float(cell["value"]) for cell in read if cell]
        spread = [float(cell["spread"] or 0) for cell in read if cell]
        curves.append(Curve(title, labels, values, spread))
    return curves


# -- pages ----------------------------------------------------------------------------------


def strategy_page(name: str, cls: type, facts: Facts) -> str:
    """Return the page of one strategy."""
    contract: Contract = cls.contract
    parts = [
        _title(name),
        _rst(summarize(cls)),
        note(name, facts),
        paper_line(contract),
    ]
    parts += picture(name, facts)
    parts += when(name, facts)
    parts += measured(name, facts)
    parts += costs(name, facts)
    parts += reveals(contract)
    parts += use(name, cls, contract)
    return "\n\n".join(part for part in parts if part) + "\n"


def note(name: str, facts: Facts) -> str:
    """Return the note on the use of a strategy; "" without one."""
    return _rst(facts.words.get(name, {}).get("note", ""))


def paper_line(contract: Contract) -> str:
    """Return the reference of its paper."""
    if contract.year:
        return f"{_rst(contract.title)}: {_rst(contract.paper)}, {contract.year}."
    return ""


def picture(name: str, facts: Facts) -> list[str]:
    """Return a chart and the source of its numbers."""
    task = facts.scores[facts.scores["task"] == FIRST_TASK]
    if name == REFERENCE:
        rival = "margin"
        return chart_of_benchmark(task, name, rival)
    if name in set(task["strategy"]):
        return chart_of_benchmark(task, name, REFERENCE)
    if name in FROM_TABLES:
        table = FROM_TABLES[name]
        curves = read_table_curve(table, name)
        caption = f"{table.caption}: {name} beside {table.beside}."
        source = f"Source: ``studies/{table.page}``."
        drawn = draw_curves(curves, table.score, caption)
        return [_raw(drawn), _caption(f"{caption} Bands: one standard deviation. {source}")]
    lines = many_lines(name, facts)
    if lines:
        caption = (
            f"Final accuracy of {name} minus random sampling, ten seeds, 95 % intervals."
        )
        drawn = draw_differences(lines, "points above random sampling", caption)
        return [_raw(drawn), _caption(f"{caption} {SOURCE_OF_MANY}")]
    return ["There is no figure: no learning curve was recorded."]


def benchmark_curve(task: pd.DataFrame, name: str) -> Curve:
    """Return mean and standard deviation of the accuracy at each number of labels."""
    rows = task[task["strategy"] == name]
    points = rows.groupby("cycle").agg(
        labels=("labels", "mean"), score=("accuracy", "mean"), spread=("accuracy", "std")
    )
    return Curve(
        name,
        points["labels"].tolist(),
        (100 * points["score"]).tolist(),
        (100 * points["spread"]).tolist(),
    )


def chart_of_benchmark(task: pd.DataFrame, name: str, beside: str) -> list[str]:
    """Return the chart of a strategy of the benchmark."""
    curves = [benchmark_curve(task, name), benchmark_curve(task, beside)]
    title = task_title(FIRST_TASK)
    caption = (
        f"Accuracy of {name} beside {beside} by number of labels, on {title}, "
        f"{count_seeds(task, name, beside)}."
    )
    drawn = draw_curves(curves, "accuracy, %", caption)
    return [
        _raw(drawn),
        _caption(f"{caption} Bands: one standard deviation. {SOURCE_OF_FEW}"),
    ]


def count_seeds(task: pd.DataFrame, name: str, beside: str) -> str:
    """Describe the number of seeds of both curves."""
    seeds = task.groupby("strategy")["seed"].nunique()
    if seeds[name] == seeds[beside]:
        return f"{seeds[name]} seeds"
    return f"{seeds[name]} and {seeds[beside]} seeds"


def task_title(task: str) -> str:
    """Return the title of a benchmark task in a sentence."""
    title = load_configs()[task].title.removeprefix("Benchmark: ")
    if task.endswith(FEDAVG):
        return f"{title}, by FedAvg"
    return title


def when(name: str, facts: Facts) -> list[str]:
    """Describe when a strategy helps and when it does not."""
    words = facts.words.get(name)
    if words is None or "helps" not in words:
        return []
    return [
        _heading("When it helps"),
        _rst(words["helps"]),
        _heading("When it does not"),
        _rst(words["fails"]),
    ]


def measured(name: str, facts: Facts) -> list[str]:
    """Return all measured differences from random sampling."""
    few = []
    for task, lines in facts.lines.items():
        for line in lines:
            if line.strategy == name and line.difference is not None and line.interval:
                interval = (
                    100 * line.difference,
                    100 * line.interval.low,
                    100 * line.interval.high,
                )
                few.append(
                    [
                        _capital(task_title(task)),
                        _interval(interval),
                        word_of(interval),
                        str(line.seeds),
                    ]
                )
    many = []
    row = _row_of_many(name)
    for setting, rows in facts.many.items():
        if row in rows:
            many.append([setting, _interval(rows[row]), word_of(rows[row])])
    parts = [_heading("Results")]
    if few:
        parts += [
            "Few labels: 2 to 200 labels per class, without an initial labeled set. The values are "
            "points of area under the learning curve above random sampling, with 95 % intervals. "
            "The training algorithm is the closed form unless stated (:doc:`/results`).",
            _table(("task", "above random [95 %]", "", "seeds"), few),
        ]
    if many:
        parts += [
            "Many labels: 10 to 25 % of the labels, FedAvg, ten seeds. The values are points of final "
            "accuracy above random sampling (:doc:`/results`).",
            _table(("setting", "above random [95 %]", ""), many),
        ]
    if name in FROM_TABLES and not (few or many):
        parts.append(
            f"The picture and similar tables: ``studies/{FROM_TABLES[name].page}``."
        )
    elif name in ELSEWHERE:
        parts.append(f"Its tables: ``studies/{ELSEWHERE[name]}.md``.")
    elif name == REFERENCE:
        parts.append("Random sampling is the reference of all comparisons.")
    elif not (few or many):
        parts.append("It was not measured.")
    return parts


ELSEWHERE = {
    "complementary": "personal-al",
    "oracle-histogram": "classification",
    "pivotal": "pivotal",
}
"""Strategies whose tables have another form."""


def word_of(interval: tuple[float, float, float]) -> str:
    """Return the result that an interval implies.

    >>> word_of((1.0, 0.2, 1.8)), word_of((0.1, -0.5, 0.7)), word_of((-1.0, -1.8, -0.2))
    ('above', 'not significant', 'below')
    """
    _, low, high = interval
    if low > 0:
        return "above"
    if high < 0:
        return "below"
    return "not significant"


def many_lines(name: str, facts: Facts) -> list[Difference]:
    """Return the four settings with many labels as lines of a chart."""
    row = _row_of_many(name)
    lines = []
    for setting, rows in facts.many.items():
        if row in rows:
            lines.append(Difference(setting, *rows[row]))
    return lines


def costs(name: str, facts: Facts) -> list[str]:
    """Describe the exchanges and bytes of one selection."""
    parts = [_heading("Cost of one selection")]
    cost = facts.costs.get(name)
    if cost is None:
        parts.append("It was not measured (``python scripts/measure_costs.py``).")
        return parts
    exchanges = int(cost["exchanges"])
    noun = "exchange" if exchanges == 1 else "exchanges"
    parts.append(
        f"{exchanges} {noun} with the sites. Each site sends {_bytes(cost['up'])} and receives "
        f"{_bytes(cost['down'])}, in addition to training. Measured in a simulation of ten sites on "
        f"{cost['simulation']} with ``python scripts/measure_costs.py``. The bytes include models that "
        "the strategy reads, and grow with the number of features."
    )
    return parts


def reveals(contract: Contract) -> list[str]:
    """Return the values that the coordinator sees, by the disclosure declaration."""
    rows = []
    for item in contract.functions:
        rows.append([f"``{item.name}``", SEES[item.operation], _rst(item.discloses)])
    parts = [
        _heading("Disclosures"),
        _table(("client function", "the coordinator sees", "what it reveals"), rows),
    ]
    if contract.simulator_only:
        parts.append("It reads hidden labels and therefore runs in simulations only.")
        return parts
    noise = (
        "supports differential privacy of counts"
        if contract.local_dp
        else "does not support differential privacy of counts"
    )
    masks = (
        "supports secure aggregation"
        if contract.secure_sum
        else "does not support secure aggregation"
    )
    parts.append(
        f"It {noise} and {masks} (:doc:`/privacy`). If a site is missing, it "
        f"{_rst(missing_words(contract))}."
    )
    if contract.parts_show:
        parts.append(f"Without secure aggregation, {_rst(contract.parts_show)}.")
    return parts


def missing_words(contract: Contract) -> str:
    """Describe the effect of a missing site, as the end of a sentence that begins with 'it'."""
    words = contract.missing.rstrip(".")
    if words.split()[0].rstrip(":,") in ("goes", "stops"):
        return words
    return f"goes on: {words}"


SEES = {
    "sum": "the aggregate over sites",
    "each": "each site's reply",
    "keep": "a count; the result stays at the site",
    "relay": "sender, receiver and size; the content is encrypted",
}


def use(name: str, cls: type, contract: Contract) -> list[str]:
    """Describe the names of a strategy."""
    needs = {"local": "the local model", "global": "the global model"}
    asked = [needs[model] for model in contract.needs if model in needs]
    looks = (
        f"It reads the predictions of {' and '.join(asked)}."
        if asked
        else "It reads no predictions."
    )
    public = cls.__name__
    parts = [
        _heading("Usage"),
        f".. code-block:: python\n\n   fl.run(federation, fl.{public}())",
        f".. code-block:: bash\n\n   fallow compare demo --strategy random,{name}",
        f"{looks} Its settings: :doc:`/reference_pages/names/fallow.{public}`.",
    ]
    return parts


def index_page(classes: Mapping[str, type], facts: Facts) -> str:
    """Return the page with all strategies, their summaries and scores."""
    by_name = {line.strategy: line for line in facts.lines[FIRST_TASK]}
    rows = []
    for name, cls in classes.items():
        line = by_name.get(name)
        shown = "–"
        if name == REFERENCE:
            shown = "0"
        elif line is not None and line.difference is not None:
            shown = f"{100 * line.difference:+.1f}"
        cost = facts.costs.get(name)
        exchanges = cost["exchanges"] if cost else "–"
        link = f":doc:`{name}`"
        rows.append([link, _rst(summarize(cls)), shown, exchanges])
    listed = "\n".join(f"   {name}" for name in classes)
    title = "Query strategies"
    intro = (
        "One page per query strategy (acquisition function): a figure, when it helps and when it "
        "does not, its cost and its disclosures. *Above random* is the area under the learning curve "
        f"minus that of random sampling on {task_title(FIRST_TASK)}, in points, from 2 to 200 labels "
        "per class (:doc:`/results`). *Exchanges* counts those of one selection. "
        ":doc:`/choose-strategy` says where to begin."
    )
    heads = ("strategy", "what it does", "above random", "exchanges")
    table = _table(heads, rows)
    tree = f".. toctree::\n   :hidden:\n\n{listed}"
    return "\n\n".join([_title(title), intro, table, tree]) + "\n"


# -- pieces of reStructuredText -------------------------------------------------------------


def _row_of_many(name: str) -> str:
    return RENAMED.get(name, name.replace("-", "_"))


def _title(text: str) -> str:
    return f"{text}\n{'=' * len(text)}"


def _heading(text: str) -> str:
    return f"{text}\n{'-' * len(text)}"


def _rst(text: str) -> str:
    """Convert a line of Markdown to reStructuredText, with code and literal stars."""
    return re.sub(r"`([^`]+)`", r"``\1``", text.replace("*", r"\*"))


def _raw(svg: str) -> str:
    return f".. raw:: html\n\n   {svg}"


def _caption(text: str) -> str:
    return f".. rst-class:: under-picture\n\n{text}"


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [".. list-table::", "   :header-rows: 1", ""]
    for row in [heads, *rows]:
        for at, cell in enumerate(row):
            start = "   * - " if at == 0 else "     - "
            lines.append(f"{start}{cell}".rstrip())
    return "\n".join(lines)


def _interval(interval: tuple[float, float, float]) -> str:
    value, low, high = interval
    return f"{value:+.2f} [{low:+.2f}, {high:+.2f}]"


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _bytes(text: str) -> str:
    """Return a number of bytes with its unit.

    >>> _bytes("96"), _bytes("25600"), _bytes("2048000")
    ('96 bytes', '26 kB', '2.0 MB')
    """
    many = float(text)
    if many < 1000:
        return f"{many:.0f} bytes"
    if many < 1e6:
        return f"{many / 1e3:.0f} kB"
    return f"{many / 1e6:.1f} MB"
