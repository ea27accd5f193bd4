"""Test that values written as TOML are read back unchanged."""

from __future__ import annotations

import time
import tomllib

import pytest
import tomlkit
from hypothesis import given
from hypothesis import strategies as st

from fallow.deployment.schema import Column, Schema
from fallow.deployment.toml import add_setting, schema_section

TEXTS = st.text(st.characters(exclude_categories=["Cs"]))
VALUES = st.recursive(
    st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False) | TEXTS,
    lambda values: st.lists(values) | st.dictionaries(TEXTS, values),
    max_leaves=8,
)


@given(TEXTS, VALUES)
def test_any_value_under_any_name_is_read_again(name: str, value: object) -> None:
    document = tomlkit.document()
    add_setting(document, name, value, comment="of no use\nbut allowed")
    assert tomllib.loads(tomlkit.dumps(document)) == {name: value}


def test_what_is_none_is_left_out_of_tables() -> None:
    document = tomlkit.document()
    add_setting(document, "model", {"name": "mlp", "seed": None})
    assert tomllib.loads(tomlkit.dumps(document)) == {"model": {"name": "mlp"}}


@pytest.mark.long
def test_the_section_of_a_wide_table_takes_time_in_proportion_to_its_columns() -> None:
    """Gene expression tables have 20,000 columns."""
    seconds: list[float] = []
    for n in (500, 4000):
        columns = tuple(Column(f"gene {number}") for number in range(n))
        schema = Schema("table", "classification", "y", ("a", "b"), columns, (n,))
        begun = time.process_time()
        text = schema_section(schema).as_string()
        seconds.append(time.process_time() - begun)
        assert len(tomllib.loads(text)["columns"]) == n
    assert seconds[1] < 24 * seconds[0]  # quadratic time would give a factor of 64
