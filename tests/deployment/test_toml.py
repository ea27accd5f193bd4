"""What is written as TOML is read again as it was, whatever it holds."""

from __future__ import annotations

import tomllib

import tomlkit
from hypothesis import given
from hypothesis import strategies as st

from fallow.deployment.toml import add_setting

TEXTS = st.text(st.characters(exclude_categories=["Cs"]))
VALUES = st.recursive(
    st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False) | TEXTS,
    lambda values: st.lists(values) | st.dictionaries(TEXTS, values),
    max_leaves=8,
)


@given(TEXTS, VALUES)
def test_any_value_under_any_name_is_read_again(name: str, value: object) -> None:
    document = tomlkit.document()
    add_setting(document, name, value, about="of no use\nbut allowed")
    assert tomllib.loads(tomlkit.dumps(document)) == {name: value}


def test_what_is_none_is_left_out_of_tables() -> None:
    document = tomlkit.document()
    add_setting(document, "model", {"name": "mlp", "seed": None})
    assert tomllib.loads(tomlkit.dumps(document)) == {"model": {"name": "mlp"}}
