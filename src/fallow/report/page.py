"""Report page about one or several studies, created from their records."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from fallow.configs.papers import Paper, paper_results_of
from fallow.report import (
    closed_form,
    comparisons,
    costs,
    description,
    disclosure,
    forecast,
    measured,
    metrics,
    own_data,
    personal,
    regression,
    results,
    selection,
)
from fallow.report.final_table import final_table, label_of
from fallow.report.live import live, refresh
from fallow.report.render import Article, Page, parts_of, render_page
from fallow.report.section import (
    Section,
    SectionPosition,
    buys_classes,
    chooses,
    has_class_scores,
    has_label_scores,
    has_numbers,
    is_live,
    sections_of,
    tells_classes,
)
from fallow.report.sentences import summary
from fallow.report.side_by_side import across, names_of
from fallow.storage.files import write_whole
from fallow.study.names import heading
from fallow.study.reading import read_study
from fallow.study.records import StudyRecords
from fallow.study.trainers import describe_trained

STATE, CURVES, SCORES, SITES, ERRORS, CLASSES, FINDINGS, RUN = SectionPosition
SELECTED = "Selected examples similar to labels of collaborators"
GENERAL = (
    Section("Progress", STATE, live, is_live),
    Section("Your data", STATE, own_data.own_data, own_data.has_facts),
    Section(
        "Data of the sites", STATE, description.description, description.has_description
    ),
    Section("Learning curves", CURVES, results.curves, chooses),
    Section("Final scores", SCORES, results.scores),
    Section("Selected examples", SCORES, selection.selection, selection.has_selections),
    Section("Metrics", SCORES, metrics.metrics, metrics.has_metrics),
    Section("Measurements", SCORES, measured.measured, measured.has_measured),
    Section("Forecast for more labels", SCORES, forecast.forecast, forecast.has_forecast),
    Section("Accuracy over rounds", SITES, personal.rounds, personal.has_sites),
    Section("Sites", SITES, personal.sites, personal.has_sites),
    Section("Site by site", SITES, personal.pairs, personal.has_sites),
    Section(SELECTED, SITES, personal.redundancy, personal.has_sites),
    Section("Errors over cycles", ERRORS, regression.errors, has_numbers),
    Section(
        "Errors relative to the fit with all labels", ERRORS, regression.excess, has_numbers
    ),
    Section("Accuracy by class", CLASSES, results.classes, has_class_scores),
    Section("Accuracy by label", CLASSES, results.classes, has_label_scores),
    Section("Partition", CLASSES, results.partition, tells_classes),
    Section("Labels of each class over cycles", CLASSES, results.balance, buys_classes),
    Section("Effect of a setting", FINDINGS, comparisons.compare_settings, chooses),
    Section(
        "Closed-form classifiers", RUN, closed_form.closed_form, closed_form.has_closed_form
    ),
    Section("Attacks on what was sent", RUN, disclosure.disclosure, disclosure.has_attacks),
    Section("What left each site", RUN, costs.disclosure),
    Section("Reproduce this study", RUN, costs.run_details),
)
"""Report sections for all studies."""

PLURAL = {"Algorithm": "Algorithms", "Strategy": "Strategies"}


def study_article(
    study: StudyRecords, key: str, name: str, sections: Sequence[Section]
) -> Article:
    """Return a study as an article; ``key`` is the prefix of all its ids."""
    described = study.study
    facts = (
        f"{PLURAL[heading(described)]}: {len(study.strategies)}, "
        f"seeds: {len(described.seeds)}"
    )
    if described.reference:
        facts += f", reference: {label_of(described.reference, described)}"
    lines = [facts]
    trained = describe_trained(study)
    if trained:
        lines = [f"Trained by {trained}", facts]
    return Article(
        id=key,
        name=name,
        title=str(described.config.get("title") or ""),
        lead=summary(study, final_table(study)),
        facts=lines,
        warnings=regression.warnings(study),
        parts=parts_of(key, [(s.title, s.blocks(study, key)) for s in sections]),
    )


def report_html(studies: Sequence[StudyRecords], papers: Sequence[Paper] = ()) -> str:
    """Return the page as text.  Raises ValueError without a study.

    Sections that the article about all studies replaces are omitted.
    """
    if not studies:
        raise ValueError(
            "a report needs at least 1 study, and there are 0; give a study's directory"
        )
    own = sections_of(papers)
    sections = sorted([*GENERAL, *own.of_one], key=lambda section: section.position)
    names = names_of(studies)
    articles = []
    for i, study in enumerate(studies):
        hidden = set()
        for section in own.of_several:
            if any(study is covered for covered in section.covers(studies)):
                hidden.add(section.replaces)
        shown = [section for section in sections if section.title not in hidden]
        articles.append(study_article(study, f"study-{i}", names[i], shown))
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
    StorageError
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
