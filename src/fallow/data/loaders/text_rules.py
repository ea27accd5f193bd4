"""Rules on texts in cells: empty cells, dates, identifiers, and names that look alike."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from decimal import Decimal, InvalidOperation

import numpy as np
import numpy.typing as npt

from fallow.core.wording import compose, count_noun, join_some, join_words
from fallow.data.reading import DIFFERENT_TEXTS, Finding, note, warning

EMPTY = frozenset(
    {
        "",
        "#bezug!",
        "#div/0!",
        "#n/a",
        "#n/a n/a",
        "#n/d",
        "#na",
        "#name?",
        "#nombre!",
        "#null!",
        "#num!",
        "#nv",
        "#ref!",
        "#valeur!",
        "#valor!",
        "#value!",
        "#wert!",
        "#zahl!",
        "(null)",
        "-1.#ind",
        "-1.#qnan",
        "-nan",
        "1.#ind",
        "1.#qnan",
        "<na>",
        "<null>",
        "?",
        "[null]",
        "\\n",
        "n/a",
        "na",
        "nan",
        "nat",
        "none",
        "null",
    }
)
"""Texts for a missing feature, in lower case: those of pandas, R, Weka, SQL and Excel."""
PERHAPS_EMPTY = frozenset(
    {".", "..", "-", "--", "n.a.", "n.a", "n. a.", "n/d", "k.a.", "k. a.", "k.a"}
)
"""Texts that often mean a missing value, in lower case, and are levels or classes."""
MOST_LEVELS = 50  # maximum number of texts of a category; columns with more contain names or sentences
FEW_VALUES = 12  # maximum number of values of categories that include numbers
ENOUGH = 20  # minimum number of rows for a rule about nearly every row
NEARLY = 0.9  # share of the non-empty rows
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
EXACT = 2.0**53
"""Largest whole number up to which float64 has all digits."""
INFINITE = frozenset({"inf", "infinity"})
"""Texts for infinity, in lower case without a sign."""
IDS = re.compile(
    r"(.*[\W_])?(id|ids|nr|no|number|key|uuid|guid|index|mrn|rowid)", re.IGNORECASE
)
"""Names of identifier columns, if no two rows are equal."""
OBJECTS = (
    "patient|subject|participant|person|proband|animal|mouse|rat|donor|specimen|slide|video|user"
    "|customer"
)
REPEATED = re.compile(
    rf"(.*[\W_])?(id|ids|nr|mrn|uuid|guid)|pid|fall(nummer|nr)?|({OBJECTS})([\W_]?(no|number|name|code|key))?",
    re.IGNORECASE,
)
"""Names of identifier columns, if several rows are of one patient or object."""
SAVED_INDEX = re.compile(
    r"unnamed: 0|index|level_\d+|__index_level_\d+__|row_?(nr|num|number|names?|id|index)?"
    r"|row\.names|_rowid_|\.\.\.1|column 1",
    re.IGNORECASE,
)
"""Names under which pandas, R, polars, Arrow, Excel and SQL save the numbers of rows."""
ENOUGH_MONTHS = 6
"""Smallest number of different numbers such as 202401 that are months and no measurements."""
SERIAL_DAYS = (20_000, 60_000)
"""Range of days since 1900, as Excel counts them."""
DATE_NAME = re.compile(
    r"date|datum|fecha|birth|geburt"
    r"|(^|[\W_])(dat|dt|dob|day|tag|visit|admission|discharge|onset|death|diagnosis|follow[\W_]?up"
    r"|aufnahme|entlassung)([\W_]|$)",
    re.IGNORECASE,
)
"""Names of columns that may have dates."""
MOST_OF_DAYS = 210012312359
"""Largest number that is a date with its time."""
MONTH_NAME = r"(jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]{0,6}"
CLOCK = r"\d{1,2}:\d{2}(:\d{2}(\.\d+)?)?( ?[ap]m)?"
DATE = re.compile(
    rf"(\d{{4}}[-/.]\d{{1,2}}[-/.]\d{{1,2}}|\d{{1,2}}[-/.]\d{{1,2}}[-/.](\d{{4}}|\d{{2}})"
    rf"|\d{{1,2}}[-/. ]?{MONTH_NAME}[-/., ]{{0,2}}(\d{{4}}|\d{{2}})"
    rf"|{MONTH_NAME} \d{{1,2}},? \d{{4}})"
    rf"([T ]{CLOCK}(Z|[+-]\d{{2}}:?\d{{2}})?)?"
    rf"|{CLOCK}"
    r"|-?\d+ days?,? [+-]?\d{1,2}:\d{2}:\d{2}(\.\d+)?",  # durations
    re.IGNORECASE | re.ASCII,
)
RATIO = re.compile(r"1:\d+")
"""Dilutions, such as 1:20, which are no times of day if all begin so."""
SHORT_DATE = re.compile(
    rf"\d{{1,2}}[-/. ]{MONTH_NAME}|{MONTH_NAME}[-/. ]\d{{1,2}}|(?P<year>\d{{4}})[-/]\d{{2}}",
    re.IGNORECASE | re.ASCII,
)
"""Dates without a year or a day, which may be names as well."""
TIGHT = (
    "% ‰ ° °C °F µg ug mg g kg t ng ml mL dl l L mm cm m km ms s min h d bpm Hz kHz mmHg Pa "
    "hPa kPa bar K V mV W kW J kJ mol mmol px kB MB GB"
)
"""Units that may follow a number without a space; other letters there belong to a code."""
GAP_MARKS = " '’\u00a0\u202f"
"""Characters between groups of three digits."""
NUMERAL = rf"[+-]?(\d{{1,3}}([{GAP_MARKS}]\d{{3}})+([.,]\d+)?|[\d.,]*\d)"
UNIT = re.compile(
    rf"(?P<number>{NUMERAL}([eE][+-]?\d+)?)\s*(?P<unit>[^\W\d_]\S{{0,11}}|[%‰°€]\S{{0,11}})"
)
CURRENCY = re.compile(
    rf"(?P<unit>[$€£¥₹]|CHF|EUR|USD|GBP|Fr\.|Rs\.?)\s*(?P<number>{NUMERAL})"
)
"""Currencies are before a number or behind it."""


SHORTENED = re.compile(r"\d([.,]\d+)?E\+\d+")
"""Long numbers as spreadsheets write them, such as ``1.23457E+15``."""
POWER = re.compile(r"[\d.,]+\s*([dD][+-]?\d+|[x×·]\s*10\^?[+-]?\d+|[½¼¾]|\d+/\d+)|[½¼¾]")
"""Numbers that are written with a power of ten or a fraction."""
FORM = re.compile(r"[\d.,\s]+")
BEGINS_WITH_NUMBER = re.compile(r"[^\w]*\d")
MOST_LISTED = 3  # maximum number of groups of names in one sentence
TRUTH_DIGITS = {"false": "0", "true": "1"}
"""Texts for Booleans, in lower case, and the digits that mean the same."""
RANGES = frozenset("-–<>+≥≤")
"""Characters between numbers that make a range or an identifier."""
MOST_FORMS = 6


def find_number_inside(levels: Sequence[str]) -> str | None:
    """Return the first of texts with few forms around numbers, such as ``120/80``; or None.

    A person means their numbers, and a model would have the texts.

    >>> find_number_inside([f"{n}/80" for n in range(100, 120)])
    '100/80'
    >>> find_number_inside([f"{n}-{n + 9}" for n in range(20)])
    """
    powers = [text for text in levels if POWER.fullmatch(text)]
    if powers and all(number_in(text) is not None for text in {*levels} - {*powers}):
        return powers[0]
    if not all(map(BEGINS_WITH_NUMBER.match, levels)):
        return None
    form_of = {text: FORM.sub("", text) for text in levels}
    forms = {*form_of.values()} - {""}
    if not forms:  # of decimal commas
        return next((text for text in levels if "," in text), None)
    if (
        len(levels) < 2 * MOST_FORMS
        or len(forms) > MOST_FORMS
        or {*"".join(forms)} <= RANGES
    ):
        return None
    return next(text for text in levels if form_of[text])


def are_days(values: npt.NDArray[np.float64]) -> bool:
    """Return whether whole numbers are dates such as 20240131, of more than one month.

    >>> are_days(np.array([20231231.0, 20240101.0])), are_days(np.array([20231301.0]))
    (True, False)
    """
    if len(values) < 2 or values.min() < 190001 or values.max() > MOST_OF_DAYS:
        return False
    return (
        _are_months_and_days(values // 100, values % 100)
        or _are_months_and_days(  # with hours and minutes
            values // 1_000_000,
            values // 10_000 % 100,
            (values // 100 % 100 < 24) & (values % 100 < 60),
        )
        or _are_months_and_days(  # the day first
            values % 10_000 * 100 + values // 10_000 % 100, values // 1_000_000
        )
        or (
            len(np.unique(values[:1000])) >= ENOUGH_MONTHS
            and _are_months_and_days(values, np.ones_like(values))
        )
    )


def are_serial_days(name: str, values: npt.NDArray[np.float64]) -> bool:
    """Return whether numbers are dates as Excel counts days, by their range and their column.

    >>> are_serial_days("visit_date", np.array([44927.0, 45010.5]))
    True
    >>> are_serial_days("income", np.array([44927.0, 45010.5]))
    False
    """
    if not len(values) or DATE_NAME.search(name) is None:
        return False
    return is_serial_day(float(values.min())) and is_serial_day(float(values.max()))


def is_serial_day(number: float) -> bool:
    """Return whether a number may be a day since 1900, between the years 1954 and 2064."""
    low, high = SERIAL_DAYS
    return low <= number < high


def _are_months_and_days(
    months: npt.NDArray[np.float64],
    days: npt.NDArray[np.float64],
    is_time: npt.NDArray[np.bool_] | bool = True,
) -> bool:
    """Return whether months such as 202401 and days of months are real, and not all in one."""
    if months.min() < 190001 or months.max() > 210012:
        return False
    is_day = (months % 100 >= 1) & (months % 100 <= 12) & (days >= 1) & (days <= 31)
    return bool((is_day & is_time).all()) and len(np.unique(months)) > 1


def number_in(cell: str) -> float | None:
    """Return the number in a cell as CSV programs read it, or None for text.

    >>> number_in("1e3"), number_in("63,5"), number_in("1_000"), number_in("١")
    (1000.0, None, None, None)
    """
    if NUMBER.fullmatch(cell) or cell.lstrip("+-").lower() in INFINITE:
        return float(cell)
    return None


def is_long_number(text: str) -> bool:
    """Return whether a whole number has more digits than float64 keeps.

    >>> is_long_number("9007199254740993"), is_long_number("123456")
    (True, False)
    """
    digits = text.lstrip("+-")
    return digits.isdecimal() and float(digits) >= EXACT


def normal_name(text: str) -> str:
    """Return a name without surrounding spaces, in the composed form of Unicode (NFC)."""
    return compose(text.strip())


def is_empty(text: str) -> bool:
    """Return whether a text marks a missing feature."""
    return text.lower() in EMPTY


def is_perhaps_empty(text: str) -> bool:
    """Return whether a text may mean a missing value, and is read as a name.

    >>> is_perhaps_empty("k.A."), is_perhaps_empty("other")
    (True, False)
    """
    return text.lower() in PERHAPS_EMPTY


def has_leading_zero(text: str) -> bool:
    """Return whether a number would lose zeros: ``007``, but not ``0`` or ``0.5``."""
    digits = text.lstrip("+-")
    return len(digits) > 1 and digits[0] == "0" and digits.isdecimal()


def names_rows(name: str) -> bool:
    """Return whether the name of a column is common for identifiers.

    >>> names_rows("patient_id"), names_rows("Nr."), names_rows("humid")
    (True, True, False)
    """
    plain = name.strip().rstrip(".")
    return IDS.fullmatch(plain) is not None


def names_groups(name: str) -> bool:
    """Return whether the name of a column is common for the objects of several rows.

    >>> names_groups("patient"), names_groups("Video ID"), names_groups("body_mass_index")
    (True, True, False)
    """
    return REPEATED.fullmatch(name.strip().rstrip(".")) is not None


def names_saved_index(name: str) -> bool:
    """Return whether a program saves the numbers of rows under this name.

    >>> (
    ...     names_saved_index("Unnamed: 0"),
    ...     names_saved_index("row_nr"),
    ...     names_saved_index("age"),
    ... )
    (True, True, False)
    """
    return SAVED_INDEX.fullmatch(name.strip()) is not None


def are_dates(levels: Sequence[str]) -> bool:
    """Return whether nearly all of these texts are dates or times.

    >>> are_dates(["2024-01-31", "2024-02-01 10:30"]), are_dates(["1", "2"])
    (True, False)
    """
    if all(map(RATIO.match, levels)):
        return False
    matching = sum(DATE.fullmatch(level) is not None for level in levels[:1000])
    return matching >= 0.95 * min(len(levels), 1000)


def find_short_dates(levels: Sequence[str]) -> str | None:
    """Return the first of texts that all are months of years or days of months; None for others.

    Years such as 2019-20 are seasons.

    >>> find_short_dates(["2024-01", "2023-07"]), find_short_dates(["2019-20", "2020-21"])
    ('2024-01', None)
    """
    parts = [SHORT_DATE.fullmatch(level) for level in levels[:1000]]
    if not parts or None in parts or all(map(_is_season, levels)):
        return None
    return levels[0]


def _is_season(text: str) -> bool:
    return text[:4].isdecimal() and (int(text[:4]) + 1) % 100 == int(text[5:])


def find_made_date(levels: Sequence[str]) -> tuple[str, str] | None:
    """Return a date among texts that are none, and one of these; None without any.

    Spreadsheets make dates of texts such as 5-9 and SEPT2.

    >>> find_made_date(["0-4", "05-Sep", "10-14"]), find_made_date(["0-4", "5-9"])
    (('05-Sep', '0-4'), None)
    """
    is_made = [
        DATE.fullmatch(level) is not None or SHORT_DATE.fullmatch(level) is not None
        for level in levels[:1000]
    ]
    if not 0 < sum(is_made) < len(is_made) or all(map(RATIO.match, levels)):
        return None
    return levels[is_made.index(True)], levels[is_made.index(False)]


def warn_of_dates(what: str, levels: Sequence[str]) -> list[Finding]:
    """Return a warning of dates that are used as texts.

    what: a column, or the labels.  levels: their different texts.
    """
    short = find_short_dates(levels)
    if short is not None:
        sentence = f"{what}: texts such as {short!r} may be dates, and are used as names"
        return [warning(sentence, "drop the column, or write one number in each cell")]
    made = find_made_date(levels)
    if made is None:
        return []
    date, other = made
    number = number_in(other)
    if number is not None and is_serial_day(number):
        sentence = (
            f"{what}: {date!r} is a date beside numbers such as {other}, which may be dates as Excel "
            "counts days"
        )
        return [warning(sentence, "write all as dates, or drop the column")]
    sentence = (
        f"{what}: {date!r} is a date beside texts such as {other!r}: a spreadsheet may have made it "
        "of another text"
    )
    return [warning(sentence, "write the original text")]


def describe_dates(levels: Sequence[str]) -> str:
    """Explain that a column of dates is not a feature."""
    return f"it contains dates or times ({levels[0]!r}, ...)"


def explain_many_texts(n_levels: int, n_values: int, enough: int = ENOUGH) -> str | None:
    """Explain that a column with too many different texts is not a feature, or return None.

    n_values: number of non-empty cells. enough: minimum number of texts for the rule that
    texts which differ in nearly every row are identifiers.

    >>> explain_many_texts(30, 30)
    'it is an identifier (30 different texts in 30 rows)'
    >>> explain_many_texts(4, 30) is None
    True
    """
    counted = f"({n_levels:,} {DIFFERENT_TEXTS} {n_values:,} rows)"
    if names_every_row(n_levels, n_values, enough):
        return f"it is an identifier {counted}"
    if n_levels > MOST_LEVELS:
        return f"it is free text {counted}"
    return None


def names_every_row(n_levels: int, n_values: int, enough: int = ENOUGH) -> bool:
    """Return whether the texts differ in nearly every row, like identifiers; arguments as
    above.
    """
    return n_levels >= NEARLY * n_values and n_values >= enough


def split_unit(text: str) -> tuple[str, str] | None:
    """Return the number and the unit of a cell, or None for a cell without a unit.

    >>> split_unit("0.123 mg"), split_unit("5 %"), split_unit("$ 12"), split_unit("A12")
    (('0.123', 'mg'), ('5', '%'), ('12', '$'), None)
    """
    result = UNIT.fullmatch(text) or CURRENCY.fullmatch(text)
    if result is None:
        return None
    number, unit = result["number"], result["unit"]
    is_tight = text == number + unit
    if is_tight and unit not in TIGHT.split():
        return None
    return number, unit


BYTE_ORDER = "\ufeff"
BETWEEN_LETTERS = re.compile(r"(?<=[^\W\d_])_+(?=[^\W\d_])")
"""Underscores that separate words as spaces do."""
CYRILLIC = "\u0430\u0432\u0435\u0456\u0458\u043a\u043c\u043d\u043e\u0440\u0455\u0442\u0443\u0445\u0441"
LATIN = "abeijkmhopstyxc"
OMICRON = "\u03bf"
APOSTROPHES = "\u2019\u2018\u02bc"
LOOK_ALIKE = str.maketrans(f"{CYRILLIC}{OMICRON}{APOSTROPHES}", f"{LATIN}o'''")
"""Letters and apostrophes, and those of ASCII that look like them."""


def _plain_character(character: str) -> str:
    """Return the ASCII character that looks like one in lower case; "" for an invisible one."""
    kind = unicodedata.category(character)
    if kind == "Cf":
        return ""
    if kind == "Pd" or character == "\N{MINUS SIGN}":
        return "-"
    return character.translate(LOOK_ALIKE)


def _likeness(name: str) -> str:
    """Return a key that is equal for names which differ only in their writing.

    >>> _likeness("non\u2013smoker") == _likeness("Non-smoker\\u200b"), _likeness("1_2")
    (True, '1_2')
    """
    plain = unicodedata.normalize("NFKC", name).casefold()
    if not plain.isascii():
        plain = "".join(_plain_character(one) for one in plain)
    plain = BETWEEN_LETTERS.sub("", plain)
    plain = "".join(plain.split())
    plain = TRUTH_DIGITS.get(plain, plain)
    if NUMBER.fullmatch(plain) is None:
        return plain
    with suppress(InvalidOperation):  # an exponent beyond all limits
        plain = _write_exactly(Decimal(plain))
    return plain


def _write_exactly(number: Decimal) -> str:
    """Return a number with all digits, in the same way for each way to write it.

    >>> _write_exactly(Decimal("1.0")) == _write_exactly(Decimal("+01"))
    True
    """
    sign, digits, exponent = number.as_tuple()
    text = "".join(map(str, digits)).lstrip("0")
    if not text:
        return "0"
    whole = text.rstrip("0")
    return f"{'-' * sign}{whole}e{int(exponent) + len(text) - len(whole)}"


def find_similar_names(counts: Mapping[str, int]) -> list[list[str]]:
    """Return groups of names that differ only in case, spaces, zeros or form of Unicode.

    counts: number of rows of each name.  The most frequent name of a group is the first.

    >>> find_similar_names({"Sick": 3, "sick": 20, "well": 7})
    [['sick', 'Sick']]
    """
    groups: dict[str, list[str]] = {}
    for name in counts:
        groups.setdefault(_likeness(name), []).append(name)
    similar = [group for group in groups.values() if len(group) > 1]
    return [sorted(group, key=lambda name: (-counts[name], name)) for group in similar]


def merge_names(counts: Mapping[str, int]) -> dict[str, str]:
    """Return the most frequent name for each name that differs from it only in writing.

    >>> merge_names({"Sick": 3, "sick": 20, "well": 7})
    {'Sick': 'sick'}
    """
    merged: dict[str, str] = {}
    for kept, *others in find_similar_names(counts):
        merged.update(dict.fromkeys(others, kept))
    return merged


def settle_names(
    what: str, names: npt.NDArray[np.str_], merge: bool
) -> tuple[npt.NDArray[np.str_], list[Finding]]:
    """Return names of sites or groups, (n,), merged if requested, and what was found.

    what: kind of names, in the plural.

    >>> settle_names("sites", np.array(["a", "A", "A"]), merge=True)[0].tolist()
    ['A', 'A', 'A']
    """
    counts = Counter(names.tolist())
    doubts = [*warn_of_unknown_names(what, counts), *warn_of_garbled_names(what, counts)]
    if not merge:
        return names, [*doubts, *warn_of_similar_names(what, counts, "merge=True")]
    merged = merge_names(counts)
    settled = np.array([merged.get(name, name) for name in names.tolist()], dtype=np.str_)
    return settled, [*doubts, *describe_merged(what, merged)]


def warn_of_unknown_names(what: str, counts: Mapping[str, int]) -> Iterator[Finding]:
    """Yield warnings of names that may mean a missing one, and of shortened numbers.

    what: kind of names, in the plural.  counts: number of rows of each name.
    """
    unknown = [name for name in counts if is_empty(name) or is_perhaps_empty(name)]
    if unknown:
        listed = join_some(
            [f"{name!r} ({count_noun(counts[name], 'row')})" for name in unknown]
        )
        sentence = (
            f"the {what} {listed} may mean a missing name, and count as one of the {what}"
        )
        yield warning(sentence, "write the right name in these rows")
    shortened = next(filter(SHORTENED.fullmatch, counts), None)
    if shortened is not None:
        yield warn_of_lost_digits(what, shortened)


def warn_of_lost_digits(what: str, name: str) -> Finding:
    """Return a warning of names that are numbers without all of their digits.

    what: kind of names, in the plural.  name: one of them.
    """
    return warning(
        f"{what} such as {name!r} are numbers whose last digits are lost, so that different "
        f"{what} may have one name",
        "write them as texts, with all digits",
    )


def describe_merged(what: str, merged: Mapping[str, str]) -> list[Finding]:
    """Return a note on merged names, if any."""
    if not merged:
        return []
    listed = [f"{name!r} into {kept!r}" for name, kept in merged.items()]
    return [note(f"{what}: merged {join_some(listed)}", "merge=False")]


def warn_of_similar_names(what: str, counts: Mapping[str, int], fix: str) -> list[Finding]:
    """Return a warning with each group of names that may be the same.

    what: kind of names, in the plural, such as "classes".
    """
    groups = find_similar_names(counts)
    if not groups:
        return []
    listed = []
    for group in groups[:MOST_LISTED]:
        names = [f"{name!r} ({count_noun(counts[name], 'row')})" for name in group]
        listed.append(join_words(names))
    more = len(groups) - MOST_LISTED
    if more > 0:
        listed.append(f"names of {count_noun(more, 'more group')}")
    return [warning(f"{what} {'; '.join(listed)} differ only in their writing", fix)]


def warn_of_garbled_names(what: str, names: Iterable[str]) -> list[Finding]:
    """Return a warning of a name whose letters were lost in a wrong encoding.

    what: kind of names, in the plural.

    >>> warn_of_garbled_names("classes", ["M\u00c3\u00bcller"])[0].sentence
    "classes such as 'M\u00c3\u00bcller', perhaps 'M\u00fcller', were written in another encoding"
    """
    for name in names:
        if name.isascii():
            continue
        perhaps = ""
        with suppress(UnicodeError):
            perhaps = f", perhaps {name.encode('cp1252').decode()!r},"
        if perhaps or "\N{REPLACEMENT CHARACTER}" in name:
            sentence = f"{what} such as {name!r}{perhaps} were written in another encoding"
            return [warning(sentence, "write the right letters")]
    return []


def name_columns(header: Sequence[str], file: str) -> list[str]:
    """Return the names in a header; a column without a name gets its number.

    Marks of the byte order are no letters, as in files that were joined.

    Raises ValueError for equal names.
    """
    names = []
    for index, name in enumerate(header, start=1):
        names.append(normal_name(name.lstrip(BYTE_ORDER)) or f"column {index}")
    check_names(names, file)
    return names


def check_names(names: Sequence[str], file: str) -> None:
    """Raise ValueError if two columns have the same name."""
    double = sorted(name for name, times in Counter(names).items() if times > 1)
    if double:
        hint = explain_number_names(names) or "; rename one"
        raise ValueError(f"{file} has more than one column {double[0]!r}{hint}")


def explain_number_names(names: Sequence[str]) -> str:
    """Return the part of a sentence about a header of numbers, or "".

    >>> explain_number_names(["0.5", "NaN", "1"])
    '; the first row has numbers in place of names; add a header'
    >>> explain_number_names(["age", "1"])
    ''
    """
    if all(number_in(name) is not None or is_empty(name) for name in names):
        return "; the first row has numbers in place of names; add a header"
    return ""
