"""Read and write studies and reports as the command does, with the claims of papers."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from pathlib import Path

from fallow.configs.papers import load_paper_results, load_papers
from fallow.report import page
from fallow.report import side_by_side as over_all
from fallow.report.blocks import Block
from fallow.report.page import GENERAL
from fallow.report.render import Article, Page, parts_of, render_blocks, render_page
from fallow.report.section import SectionPosition, sections_of
from fallow.study import reading
from fallow.study.records import StudyRecords


def read_study(path: Path | str) -> StudyRecords:
    return reading.read_study(path, load_paper_results())


def write_report(studies: Sequence[Path | str], out: Path | str | None = None) -> Path:
    return page.write_report(studies, out, papers=load_papers())


OF_PAPERS = sections_of(load_papers())


def findings(study: StudyRecords, key: str, without: Collection[str] = ()) -> list[str]:
    """Return the sections on pairs and on claims of papers, as parts of a page."""
    offered = [*GENERAL, *OF_PAPERS.of_one]
    shown = []
    for section in offered:
        if section.position is SectionPosition.FINDINGS and section.title not in without:
            shown.append((section.title, section.blocks(study, key)))
    parts = parts_of(key, shown)
    if not parts:
        return []
    return [html(Article(key, "", parts=parts))]


def across(studies: Sequence[StudyRecords], key: str) -> str | None:
    result = over_all.across(studies, key, OF_PAPERS.of_several)
    if not result:
        return None
    return html(result)


def html(article: Article) -> str:
    """Render an article alone."""
    text = render_page(Page("a", [article]))
    return re.sub(".*?<main>(.*)</main>.*", r"\1", text, flags=re.DOTALL)


def piece(blocks: Block | Sequence[Block]) -> str:
    """Render blocks as part of a page."""
    if not isinstance(blocks, Sequence):
        blocks = [blocks]
    return render_blocks(blocks)
