"""The report: one page about one or several studies, made from their records alone."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from fallow.report import costs as report_run
from fallow.report import results as part
from fallow.report.across import across, swept
from fallow.report.comparisons import findings
from fallow.report.final_table import final_table, label_of
from fallow.report.html import Html, el, page, together
from fallow.report.live import live, read_live, refresh
from fallow.report.personal import chooses_nothing, personal
from fallow.report.regression import regression, warning
from fallow.report.words import summary
from fallow.storage.private import for_owner_alone, make_folder, rights_in
from fallow.study.names import heading
from fallow.study.reading import read_study
from fallow.study.records import StudyRecords


def study_html(study: StudyRecords, key: str, *, with_slopes: bool = True) -> Html:
    """A study as an article; ``key`` starts every id in it, so that articles can share a page.

    ``with_slopes``: unless the page shows them for a sweep that the study is part of.
    """
    final = final_table(study)
    described = study.study
    title = str(described.recipe.get("title") or "")
    what = {"Method": "Methods", "Query": "Queries", "Strategy": "Strategies"}[
        heading(described)
    ]
    facts = f"{what}: {len(study.strategies)}, seeds: {len(described.seeds)}" + (
        f", reference: {label_of(described.reference, described)}"
        if described.reference
        else ""
    )
    return el(
        "article",
        el("h2", described.name),
        *([el("p", title, class_="facts")] if title else []),
        el("p", summary(study, final), class_="lead"),
        el("p", facts, class_="facts"),
        *live(study),
        *warning(study),
        *([] if chooses_nothing(study) else [part.curves(study, key)]),
        part.scores(study, final),
        *personal(study, key),
        *regression(study),
        *(_about_classes(study, key) if study.higher_is_better else []),
        *([] if chooses_nothing(study) else findings(study, key, with_slopes=with_slopes)),
        report_run.left(study),
        report_run.how(study),
        id=key,
    )


def _about_classes(study: StudyRecords, key: str) -> list[Html]:
    """What only data with classes has."""
    if read_live(study.path):  # real sites do not tell of which classes their rows are
        return [part.classes(study, key)]
    shown = [part.classes(study, key), part.partition(study, key)]
    return shown if chooses_nothing(study) else [*shown, part.balance(study, key)]


def report_html(studies: Sequence[StudyRecords]) -> str:
    """The whole page as text.  Raises ValueError without a study."""
    if not studies:
        raise ValueError(
            "a report needs at least 1 study, and there are 0; give a study's directory"
        )
    names = [s.study.name for s in studies]
    found = across(studies, "across")
    over_all = [found] if found else []
    links = [el("li", el("a", name, href=f"#study-{i}")) for i, name in enumerate(names)]
    if over_all:
        links.insert(0, el("li", el("a", "Across studies", href="#across")))
    contents = (
        [el("nav", el("ul", *links), aria_label="Studies")] if len(studies) > 1 else []
    )
    shown = swept(studies)
    articles = [
        study_html(study, f"study-{i}", with_slopes=not any(study is s for s in shown))
        for i, study in enumerate(studies)
    ]
    return page(
        ", ".join(names) + " – Fallow report",
        el("main", el("h1", "Fallow report"), *contents, *over_all, together(*articles)),
        refresh=refresh([study.path for study in studies]),
    )


def write_report(studies: Sequence[Path | str], out: Path | str | None = None) -> Path:
    """Write one self-contained HTML page about study directories, and return its path.

    ``out`` is a file or an existing directory; by default ``report.html`` in the study's folder,
    and for several studies in the current one, so that no study loses its own page.
    The page appears whole or not at all: an earlier one stays until the new one is written.
    Raises ValueError when a folder is no study, OSError when the page cannot be written.
    """
    text = report_html([read_study(path) for path in studies])
    alone = Path(studies[0]) if len(studies) == 1 else Path()
    target = Path(out) if out is not None else alone
    if target.is_dir():
        target /= "report.html"
    make_folder(target.parent)
    draft = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        rights = for_owner_alone(rights_in(target.parent, 0o666))
        with open(draft, "w", encoding="utf-8", opener=rights) as page:
            page.write(text)
        draft.replace(target)
    finally:
        draft.unlink(missing_ok=True)
    return target
