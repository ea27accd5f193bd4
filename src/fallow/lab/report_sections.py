"""The sections of a study's report, in the order a reader asks: who won, why, at what price."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from html import escape
from statistics import fmean

from matplotlib.figure import Figure

from fallow.lab import figures_study as draw
from fallow.lab.figures import looks, to_svg
from fallow.lab.reading import Cell, Record, StudyRecords
from fallow.lab.report_html import Html, el, picture, section, table, together
from fallow.lab.report_words import duration, listed, size
from fallow.lab.stats import mean_sd
from fallow.lab.tables import columns, footnotes
from fallow.lab.tables_final import FinalTable, Spread, label_of, signs

SEEN_BY = {
    "sum": "the server: totals only (each addend too, unless sums are masked)",
    "each": "the server: every site's answer",
    "keep": "the server: a count; the answer stays at the site",
    "relay": "the receiving site; sealed to the server",
    "fit": "nobody: local training",
}
"""Who saw what left a site, by the kind of the exchange."""


def _figure(made: Figure | None, key: str, caption: str, absent: str) -> Html:
    if made is None:
        return el("p", absent, class_="note")
    return picture(to_svg(made, key, escape(caption)), caption)


def _name(study: StudyRecords, query: str) -> str:
    return label_of(query, study.study)


def curves(study: StudyRecords, key: str) -> Html:
    """Learning curves."""
    caption = ("A line higher up learns more from the same number of labels. Lines are means over "
               "seeds, bands one standard deviation to each side"
               + ("; dashed lines are upper bounds." if study.bounds else "."))
    if not study.higher_is_better:
        caption = caption.replace("higher up", "lower down")
    return section("Learning curves", _figure(draw.learning_curves(study), f"{key}-curves", caption,
                                              "No cycle has a score yet."))


def scores(study: StudyRecords, final: FinalTable) -> Html:
    """The final table with its tests, and the signs of published and measured differences."""
    shown, look = columns(final), looks(study)
    rows, classes, first_bound = [], [], True
    for row, cells in zip(final.rows, zip(*shown.values(), strict=True), strict=True):
        dot = el("span", class_="swatch", style=f"background:{look[row.query].colour}")
        rows.append([Html(dot + escape(cells[0])), *cells[1:]])
        kind = "bound" if row.is_bound else "reference" if row.query == final.reference else ""
        classes.append(kind + (" first" if row.is_bound and first_bound else ""))
        first_bound = first_bound and not row.is_bound
    parts = [table("Final scores, paired over seeds", list(shown), rows, classes=classes),
             el("ul", *(el("li", note) for note in footnotes(final)), class_="notes")]
    compared = signs(final)
    if compared:
        parts.append(_signs(final, compared))
    return section("Final scores", *parts)


def _signs(final: FinalTable, compared: Iterable[object]) -> Html:
    reference = final.row(final.reference or "")
    name = reference.label if reference else "reference"
    found = signs(final)
    agreeing = sum(s.agrees for s in found)
    rows = [[s.label, f"{s.measured:+.2f}", f"{s.printed:+.2f}", "same" if s.agrees else "opposite"]
            for s in found]
    return together(
        table(f"Minus {name}, measured and published (points)",
              ["Query", "Measured", "Published", "Sign"], rows),
        el("p", f"{agreeing} of {len(found)} published signs hold here. A sign says nothing about "
                "size, and a difference within chance has no reliable sign.", class_="note"))


def classes(study: StudyRecords, key: str) -> Html:
    """Per-class accuracy, and the gap between classes held evenly and unevenly."""
    figure = _figure(
        draw.class_accuracy(study), f"{key}-classes",
        "A query whose left-most dots stand higher looks after the classes that are hard to learn. "
        "One dot per class and query: last cycle, mean over seeds.",
        "The records have no accuracy per class.")
    rows = []
    for scored in draw.class_scores(study):
        if scored.halves:
            parts = [[100 * h.low for h in scored.halves], [100 * h.high for h in scored.halves],
                     [100 * h.gap for h in scored.halves]]
            rows.append([_name(study, scored.query),
                         *(Spread(*mean_sd(p)).text() for p in parts), str(len(scored.halves))])
    if not rows:
        return section("Accuracy by class", figure)
    gap = table("Accuracy of low- and high-variance classes, %",
                ["Query", "Low-variance", "High-variance", "Gap", "Seeds"], rows)
    note = ("High-variance classes are the half whose shares differ most between the sites of the "
            "seed's own partition (population spread of the shares; of an odd number the middle "
            "class counts for neither; equal spreads go by class number). A gap near 0 treats "
            "both halves alike.")
    return section("Accuracy by class", figure, gap, el("p", note, class_="note"))


def partition(study: StudyRecords, key: str) -> Html:
    """Who holds what."""
    found = draw.first_partition(study)
    caption = ""
    if found:
        parts = {cell.seed: cell.partition for cell in study.cells if cell.partition}
        kl = Spread(*mean_sd([p.kl for p in parts.values()])).text()
        absent = fmean(a for p in parts.values() for a in p.absent)
        caption = (f"Dark cells show the sites that hold a class; pale rows lack it. This is the "
                   f"partition of seed {found[0]}. Over {len(parts)} seed"
                   f"{'s' if len(parts) != 1 else ''}, a site's classes differ from the pooled "
                   f"ones by KL = {kl} nats, and a site lacks {absent:.1f} of "
                   f"{len(found[1].classes)} classes on average.")
    return section("Partition", _figure(draw.partition_map(study), f"{key}-partition", caption,
                                        "No run has written its partition yet."))


def balance(study: StudyRecords, key: str) -> Html:
    """Balance of what was labelled, and how classes were routed."""
    parts = [_figure(
        draw.label_balance(study), f"{key}-balance",
        "Left: the share of the rarer half of the classes among all labels; higher is more even, "
        "and 50 % is even for an even number of classes. Right: how far a site's labelled classes "
        "are from all labelled classes; lower is more alike.",
        "The records have no labelled counts per class.")]
    if draw.routed(study):
        parts.append(_figure(
            draw.routing(study), f"{key}-routing",
            "Left: one line per class, the spread of its share over sites; a class below the "
            "dashed threshold is scored by the local and the global model together, one above it "
            "by the local model alone. Right: how many classes are below.", ""))
    return section("Labels and routing over cycles", *parts)


@dataclass(frozen=True)
class Exchange:
    """What one verb let out in a whole run, mean over seeds."""

    query: str
    kind: str
    verb: str
    what: str
    sites: int
    exchanges: float
    amount: float


def _count(sites: object) -> int:
    """A number of sites, given as one or as their names."""
    return len(sites) if isinstance(sites, list) else int(sites) if isinstance(sites, int) else 0


def exchanges(study: StudyRecords) -> list[Exchange]:
    """What left the sites, by query and verb: the sum over a run's cycles, mean over seeds."""
    found = []
    for query in study.study.queries:
        cells = study.of(query)
        held: dict[tuple[str, str, str], list[tuple[int, int, int]]] = {}
        for cell in cells:
            for entry in _entries(cell):
                name = (str(entry["kind"]), str(entry["verb"]), str(entry.get("what", "")))
                held.setdefault(name, []).append((_count(entry.get("sites")),
                                                  int(entry.get("exchanges") or 0),
                                                  int(entry.get("bytes") or 0)))
        found += [Exchange(query, kind, verb, what, max(s for s, _, _ in rows),
                           sum(e for _, e, _ in rows) / len(cells),
                           sum(b for _, _, b in rows) / len(cells))
                  for (kind, verb, what), rows in held.items()]
    return found


def _entries(cell: Cell) -> Iterable[Mapping[str, object]]:
    """What was revealed in each cycle: its last record holds the cycle's totals."""
    for cycle in cell.cycles:
        row = cell.last_of(cycle)
        yield from (row.get("revealed") or ()) if row else ()


def left(study: StudyRecords) -> Html:
    """What left each site."""
    found = exchanges(study)
    if not found:
        return section("What left each site", el("p", "The records name no exchange.",
                                                 class_="note"))
    rows = [[_name(study, e.query), e.kind, e.verb, e.what, SEEN_BY.get(e.kind, "unknown"),
             str(e.sites), f"{e.exchanges:.0f}", size(e.amount)] for e in found]
    names = [e.query for e in found]
    marks = ["first" if i and names[i] != names[i - 1] else "" for i in range(len(names))]
    return section("What left each site", table(
        "All sites together, per run (mean over seeds)",
        ["Query", "Kind", "Verb", "What", "Who saw it", "Sites", "Exchanges", "Bytes"],
        rows, words=5, classes=marks))


def _ends(study: StudyRecords, query: str, key: str) -> list[float]:
    """The last value of a cumulative count, one per seed that has it."""
    last = [cell.records[-1].get(key) for cell in study.of(query) if cell.records]
    return [float(v) for v in last if v is not None]


def _mean(values: list[float], show: Callable[[float], str]) -> str:
    return show(fmean(values)) if values else "–"


def _all(study: StudyRecords, value: Callable[[Record], object]) -> list[str]:
    found = dict.fromkeys(str(v) for cell in study.cells for r in cell.records
                          if (v := value(r)) is not None)
    return list(found)


def how(study: StudyRecords) -> Html:
    """How it was run."""
    described = study.study
    costs = [[_name(study, q), str(len(study.of(q))),
              _mean(_ends(study, q, "seconds"), duration),
              _mean(_ends(study, q, "bytes_up"), size), _mean(_ends(study, q, "bytes_down"), size)]
             for q in described.queries]
    versions = dict(described.versions)
    for cell in study.cells:
        for record in cell.records[-1:]:
            versions |= record.get("versions") or {}
    facts = [["Seeds", ", ".join(map(str, described.seeds))],
             ["Executor", ", ".join(_all(study, lambda r: r.get("executor"))) or "–"],
             ["Threads", ", ".join(_all(study, lambda r: r.get("threads"))) or "–"],
             ["Versions", ", ".join(f"{k} {v}" for k, v in versions.items()) or "–"],
             *([str(k), str(v)] for k, v in described.recipe.items())]
    parts = [el("pre", el("code", described.command))] if described.command else []
    parts += [table("Cost of a run, mean over seeds (bytes with the models, all sites)",
                    ["Query", "Runs", "Time", "Sites to server", "Server to sites"], costs),
              table("Settings", ["Name", "Value"], facts, words=2)]
    if study.missing:
        waiting = [f"{_name(study, q)} seed {k}" for q, k in study.missing]
        more = f" and {len(waiting) - 12} more" if len(waiting) > 12 else ""
        text = listed(waiting) if not more else ", ".join(waiting[:12]) + more
        parts.append(el("p", f"Not complete: {text}.", class_="note"))
    if study.damaged:
        parts.append(el("p", f"{study.damaged} damaged line"
                             f"{'s were' if study.damaged > 1 else ' was'} skipped.",
                        class_="note"))
    return section("How it was run", *parts)
