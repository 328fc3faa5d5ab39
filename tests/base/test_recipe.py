"""A recipe's hash: equal for equal recipes, however they are written, and different for different ones."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from webtext.base.parts.recipe import Recipe, canonical_json, sha256_json, with_check, without_check

RECIPE: dict[str, Any] = {
    "stage": "clean.extract",
    "code_version": 1,
    "settings": {"max_depth": 250, "extractor": "trafilatura", "before": None},
    "versions": {"lxml": "6.1.3"},
}


def test_the_hash_is_the_sha256_of_sorted_json_without_blanks() -> None:
    expected = (
        '{"code_version":1,"settings":{"before":null,"extractor":"trafilatura","max_depth":250},'
        '"stage":"clean.extract","versions":{"lxml":"6.1.3"}}'
    )
    assert canonical_json(Recipe(**RECIPE).to_json()) == expected.encode()
    assert Recipe(**RECIPE).hash == hashlib.sha256(expected.encode()).hexdigest()


@pytest.mark.parametrize(
    "change",
    [
        {"stage": "clean.filter"},
        {"code_version": 2},
        {"settings": RECIPE["settings"] | {"max_depth": 251}},
        {"settings": RECIPE["settings"] | {"before": "none"}},
        {"settings": RECIPE["settings"] | {"another": None}},
        {"versions": {"lxml": "6.1.4"}},
        {"versions": {}},
    ],
)
def test_whatever_can_change_a_record_changes_the_hash(change: dict[str, Any]) -> None:
    assert Recipe(**RECIPE | change).hash != Recipe(**RECIPE).hash


def test_values_that_json_cannot_represent_are_rejected_instead_of_hashed() -> None:
    with pytest.raises(ValueError):
        sha256_json(float("nan"))
    with pytest.raises(TypeError):
        sha256_json({"a": {1, 2}})


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(value=values)
def test_canonical_json_reads_back_and_is_the_same_again(value: Any) -> None:
    data = canonical_json(value)
    assert canonical_json(json.loads(data)) == data


def test_an_object_with_a_check_is_read_back_and_one_without_is_not() -> None:
    """The digest: SHA-256 of the canonical JSON of the other keys."""
    made = with_check({"b": [1.5, None], "a": "ä"})
    assert without_check(json.loads(json.dumps(made))) == {"a": "ä", "b": [1.5, None]}
    assert made.pop("check") == hashlib.sha256('{"a":"ä","b":[1.5,null]}'.encode()).hexdigest()
    with pytest.raises(ValueError, match="changed"):
        without_check(made)


@given(value=st.dictionaries(st.text(), values), data=st.data())
def test_no_flipped_bit_of_an_object_goes_unnoticed(value: dict[str, Any], data: st.DataObject) -> None:
    """Except in the name of the check itself: what remains is right, under a name that no reader knows."""
    written = json.dumps(with_check({key: each for key, each in value.items() if key != "check"})).encode()
    place = data.draw(st.integers(0, len(written) - 1))
    flipped = bytearray(written)
    flipped[place] ^= 1 << data.draw(st.integers(0, 7))
    try:
        found = json.loads(flipped)
    except ValueError:
        return
    if found != json.loads(written) and "check" in found:
        with pytest.raises(ValueError):
            without_check(found)
