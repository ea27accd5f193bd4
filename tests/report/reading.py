"""Studies and pages as the command reads and writes them: with everything that papers say."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path

from fallow.papers import KNOWN, PAPERS
from fallow.report import across as over_all
from fallow.report import page
from fallow.report.general import GENERAL
from fallow.report.paper import sections_of
from fallow.report.section import Place
from fallow.study import reading
from fallow.study.records import StudyRecords


def read_study(path: Path | str) -> StudyRecords:
    return reading.read_study(path, KNOWN)


def write_report(studies: Sequence[Path | str], out: Path | str | None = None) -> Path:
    return page.write_report(studies, out, papers=PAPERS)


OF_PAPERS = sections_of(PAPERS)


def findings(study: StudyRecords, key: str, without: Collection[str] = ()) -> list[str]:
    """The sections about pairs and what papers conclude, as pieces of a page."""
    offered = [*GENERAL, *OF_PAPERS.of_one]
    wanted = [s for s in offered if s.place is Place.FINDINGS and s.title not in without]
    return [made for section in wanted if (made := section.render(study, key))]


def across(studies: Sequence[StudyRecords], key: str) -> str | None:
    return over_all.across(studies, key, OF_PAPERS.of_several)
