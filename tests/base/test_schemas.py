"""The columns of every record kind."""

from __future__ import annotations

import pyarrow as pa
import pytest

from webtext.base.parts.identifiers import ID_HEX_DIGITS
from webtext.base.parts.schemas import SCHEMAS


@pytest.mark.parametrize("kind", SCHEMAS)
def test_every_column_has_a_meaning_and_states_whether_it_may_be_null(kind: str) -> None:
    for field in SCHEMAS[kind]:
        assert field.metadata[b"meaning"]
        assert field.nullable in (True, False)
        if pa.types.is_list(field.type):
            assert not field.nullable
            assert not field.type.value_field.nullable


def test_documents_and_corpus_share_their_columns() -> None:
    assert SCHEMAS["documents"].equals(SCHEMAS["corpus"])


@pytest.mark.parametrize("kind", [kind for kind in SCHEMAS if kind not in ("tokens", "duplicates", "exchange")])
def test_a_record_is_named_by_a_required_id(kind: str) -> None:
    name = "link_id" if kind in ("links", "pages") else "id"
    assert not SCHEMAS[kind].field(name).nullable
    assert ID_HEX_DIGITS == 32
