"""Report page about one or several studies, created from their records."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path

from fallow.recipes.papers import Paper, paper_results_of
from fallow.report.final_table import final_table, label_of
from fallow.report.general import GENERAL
from fallow.report.live import refresh
from fallow.report.regression import warnings
from fallow.report.render import Article, Page, parts_of, render_page
from fallow.report.section import Across, Section, sections_of
from fallow.report.sentences import summary
from fallow.report.side_by_side import across, names_of
from fallow.storage.files import write_whole
from fallow.study.names import heading
from fallow.study.reading import read_study
from fallow.study.records import StudyRecords
from fallow.study.trainers import describe_trained

PLURAL = {"Method": "Methods", "Strategy": "Strategies"}


def study_article(
    study: StudyRecords,
    key: str,
    sections: Sequence[Section] = GENERAL,
    *,
    name: str = "",
    without: Collection[str] = (),
) -> Article:
    """Return a study as an article; ``key`` is the prefix of all its ids.

    ``name`` is its title, by default the name of the study.  ``without`` lists titles of sections
    that the page shows for several studies together.
    """
    described = study.study
    facts = (
        f"{PLURAL[heading(described)]}: {len(study.strategies)}, "
        f"seeds: {len(described.seeds)}"
    )
    if described.reference:
        facts += f", reference: {label_of(described.reference, described)}"
    trained = describe_trained(study)
    lines = [f"Trained by {trained}", facts] if trained else [facts]
    ordered = sorted(sections, key=lambda section: section.position)
    shown = [section for section in ordered if section.title not in without]
    return Article(
        id=key,
        name=name or described.name,
        title=str(described.recipe.get("title") or ""),
        lead=summary(study, final_table(study)),
        facts=lines,
        warnings=warnings(study),
        parts=parts_of(key, [(s.title, s.blocks(study, key)) for s in shown]),
    )


def report_html(studies: Sequence[StudyRecords], papers: Sequence[Paper] = ()) -> str:
    """Return the page as text.  Raises ValueError without a study."""
    if not studies:
        raise ValueError(
            "a report needs at least 1 study, and there are 0; give a study's directory"
        )
    own = sections_of(papers)
    hidden = _shown_together(studies, own.of_several)
    names = names_of(studies)
    articles = [
        study_article(
            study,
            f"study-{i}",
            (*GENERAL, *own.of_one),
            name=names[i],
            without=hidden[i],
        )
        for i, study in enumerate(studies)
    ]
    together = across(studies, "across", own.of_several)
    if together is not None:
        articles.insert(0, together)
    return render_page(
        Page(
            title=", ".join(names),
            articles=articles,
            refresh=refresh([study.path for study in studies]),
        )
    )


def _shown_together(
    studies: Sequence[StudyRecords], sections: Sequence[Across]
) -> list[set[str]]:
    """Return, for each study, the sections that the article about all studies replaces."""
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
    metric: str | None = None,
    papers: Sequence[Paper] = (),
) -> Path:
    """Write a self-contained HTML page about studies, and return its path.

    The page is written atomically.

    Parameters
    ----------
    studies : sequence of Path or str
        Folders of studies.
    out : Path or str, optional
        File or existing folder.  Default: ``report.html`` in the folder of the study, or in the
        current folder for several studies.
    metric : str, optional
        Metric of the setting ``metrics`` for curves, tables and tests.
    papers : sequence of Paper, optional
        Papers with display names, published results and sections.

    Raises
    ------
    ValueError
        If a folder contains no study, or a study has no such metric.
    Failed
        If the page cannot be written.
    """
    known = paper_results_of(papers)
    records = [replace(read_study(path, known), metric=metric) for path in studies]
    text = report_html(records, papers)
    target = Path()
    if out is not None:
        target = Path(out)
    elif len(studies) == 1:
        target = Path(studies[0])
    if target.is_dir():
        target /= "report.html"
    write_whole(target, text.encode())
    return target
