"""The report: one page about one or several studies, made from their records alone."""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from pathlib import Path

from fallow.report.across import across
from fallow.report.final_table import final_table, label_of
from fallow.report.general import GENERAL
from fallow.report.html import Html, el, page, together
from fallow.report.live import refresh
from fallow.report.paper import Paper, known_of, sections_of
from fallow.report.regression import warning
from fallow.report.section import Across, Section
from fallow.report.words import summary
from fallow.study.names import heading
from fallow.study.reading import read_study
from fallow.study.records import StudyRecords


def study_html(
    study: StudyRecords,
    key: str,
    sections: Sequence[Section] = GENERAL,
    *,
    without: Collection[str] = (),
) -> Html:
    """A study as an article; ``key`` starts every id in it, so that articles can share a page.

    ``without``: titles of sections that the page shows for several studies together.
    """
    described = study.study
    title = str(described.recipe.get("title") or "")
    what = {"Method": "Methods", "Query": "Queries", "Strategy": "Strategies"}[
        heading(described)
    ]
    facts = f"{what}: {len(study.strategies)}, seeds: {len(described.seeds)}"
    if described.reference:
        facts += f", reference: {label_of(described.reference, described)}"
    ordered = sorted(sections, key=lambda section: section.place)
    rendered = [s.render(study, key) for s in ordered if s.title not in without]
    return el(
        "article",
        el("h2", described.name),
        *([el("p", title, class_="facts")] if title else []),
        el("p", summary(study, final_table(study)), class_="lead"),
        el("p", facts, class_="facts"),
        *warning(study),
        *filter(None, rendered),
        id=key,
    )


def report_html(studies: Sequence[StudyRecords], papers: Sequence[Paper] = ()) -> str:
    """The whole page as text.  Raises ValueError without a study."""
    if not studies:
        raise ValueError(
            "a report needs at least 1 study, and there are 0; give a study's directory"
        )
    own = sections_of(papers)
    names = [s.study.name for s in studies]
    found = across(studies, "across", own.of_several)
    over_all = [found] if found else []
    links = [el("li", el("a", name, href=f"#study-{i}")) for i, name in enumerate(names)]
    if over_all:
        links.insert(0, el("li", el("a", "Across studies", href="#across")))
    contents = (
        [el("nav", el("ul", *links), aria_label="Studies")] if len(studies) > 1 else []
    )
    hidden = _shown_together(studies, own.of_several)
    articles = [
        study_html(study, f"study-{i}", (*GENERAL, *own.of_one), without=hidden[i])
        for i, study in enumerate(studies)
    ]
    return page(
        ", ".join(names) + " – Fallow report",
        el("main", el("h1", "Fallow report"), *contents, *over_all, together(*articles)),
        refresh=refresh([study.path for study in studies]),
    )


def _shown_together(
    studies: Sequence[StudyRecords], sections: Sequence[Across]
) -> list[set[str]]:
    """For each study, the sections that stand in the article over all."""
    hidden: list[set[str]] = [set() for _ in studies]
    for section in sections:
        covered = section.covers(studies)
        for i, study in enumerate(studies):
            if any(study is one for one in covered):
                hidden[i].add(section.replaces)
    return hidden


def write_report(
    studies: Sequence[Path | str],
    out: Path | str | None = None,
    *,
    papers: Sequence[Paper] = (),
) -> Path:
    """Write one self-contained HTML page about study directories, and return its path.

    ``papers`` bring their names of strategies, their printed numbers and their own sections.
    ``out`` is a file or an existing directory; by default ``report.html`` in the study's folder,
    and for several studies in the current one, so that no study loses its own page.
    The page appears whole or not at all: an earlier one stays until the new one is written.
    Raises ValueError when a folder is no study, OSError when the page cannot be written.
    """
    known = known_of(papers)
    text = report_html([read_study(path, known) for path in studies], papers)
    alone = Path(studies[0]) if len(studies) == 1 else Path()
    target = Path(out) if out is not None else alone
    if target.is_dir():
        target /= "report.html"
    target.parent.mkdir(parents=True, exist_ok=True)
    draft = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        draft.write_text(text, encoding="utf-8")
        draft.replace(target)
    finally:
        draft.unlink(missing_ok=True)
    return target
