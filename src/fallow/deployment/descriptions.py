"""Descriptions of the settings of a federation, for files, pages and command-line options.

The commands read them without the models (`study_file.Parties`, `site.settings.Settings`), which
load PyTorch.
"""

from __future__ import annotations

from collections.abc import Mapping

RUNS = 10
"""Default for the largest number of runs of a study."""

FEDERATION: Mapping[str, str] = {
    "name": "name of the study",
    "sites": "names of the participating sites",
    "coordinator": "public key of the coordinator, which signs all instructions to sites",
    "transport": "https, or the name of an installed transport; sites always open the connection",
    "seed": "seed for initialization and all non-cryptographic randomness",
    "quorum": "number of sites that must reply (default: all)",
    "timeout": "time that an exchange waits for all sites (units: s, m, h, d, w)",
    "patience": "time that an exchange waits for the quorum; then the coordinator stops "
    "(restart it)",
    "deadline": "time to label the examples of a cycle; open labeling tasks then expire",
    "authority": "certificate that authenticates the coordinator's machine (default: that of "
    "each site's operating system, or of its option --ca)",
    "guideline": "labeling guideline: plain text, shown to annotators beside each example",
    "distributions": "installed distributions other than Fallow whose code the study uses; version "
    "and digest are the same at all sites",
}
"""Settings of ``[federation]`` in ``study.toml``."""

OF_FILE = ("group", "sheet", "header_row", "decimal", "pages")
"""Options of `LoadOptions` that a site sets for its own file."""
SITE: Mapping[str, str] = {
    "name": "name of this site in the study",
    "data": "unlabeled or partly labeled examples; the file must not change during the study",
    "test": "labeled test examples",
    "group": "column or array with the group of an example, such as its patient (DICOM: PatientID or "
    "SeriesInstanceUID); validation does "
    "not divide a group, and test examples have other groups. Groups at two sites are not compared",
    "sheet": "sheet of an Excel file (default: the first)",
    "header_row": "row of an Excel file with the names of the columns (default: the first that is not "
    "empty)",
    "decimal": "decimal mark of the numbers in a text file; the other mark separates thousands "
    "(default: from the cells)",
    "pages": "images with several pages or frames: refuse (default), or each page is one example",
    "confirmed": "columns whose numbers have the agreed unit, although most are outside the agreed "
    "range; without it, the site does not start",
    "address": "address of the coordinator",
    "proxy": "proxy between this site and the network (default: HTTPS_PROXY)",
    "own_certificate": "certificate that this site shows to the coordinator (PEM)",
    "own_key": "private key of own_certificate (PEM)",
    "certificates": "authority of the coordinator's certificate (default: those of the operating "
    "system)",
    "limit": "largest number of annotations from this site over all runs",
    "annotators": "number of annotators at this site, at least the annotations of an example "
    "(federation.answers)",
    "adjudicators": "annotators who decide conflicts and see who chose which label (default: all)",
    "language": "language of the labeling page: en, de, fr or es (default: that of each browser)",
    "epsilon": "privacy budget (ε) of this site over all runs (default: that of the study)",
    "delta": "delta budget of this site over all runs; each run with Gaussian noise spends the "
    "agreed delta (default: that of one run)",
    "shown": "largest number of labeling tasks shown to annotators, including expired ones "
    "(default: twice the number of labels)",
    "scores": "largest number of models scored on the test examples (default: twice the number "
    "of one run)",
    "describes": "whether this site sends counts of each column's values for a description",
    "runs": f"largest number of runs of the study at this site (default: {RUNS})",
    "allow": "installed distributions whose classes study.toml may name, with their fingerprints; "
    "review the code of a distribution before you add it",
    "login": "login to the labeling page through a reverse proxy",
}
"""Settings of ``site.toml``."""

LOGIN: Mapping[str, str] = {
    "annotators": "names of the annotators, as sent by the proxy",
    "proxies": "IP addresses of the proxy",
    "host": "host name that browsers use, with a port unless it is 443",
    "header": "field in which the proxy sends the name",
    "listen": "address of the page",
}
"""Settings of ``[page]`` in ``site.toml``."""


def as_help(description: str, more: str = "") -> str:
    """Return a description as the help of an option, without a final period.

    >>> as_help("label column of a table."), as_help(SITE["test"], "all labeled")
    ('Label column of a table', 'Labeled test examples; all labeled')
    """
    text = description.rstrip(".")
    text = text[0].upper() + text[1:]
    return f"{text}; {more}" if more else text
