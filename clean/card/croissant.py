"""The corpus as a Croissant 1.1 dataset, `corpus/croissant.json`: JSON-LD that dataset search engines and mlcroissant read.

https://docs.mlcommons.org/croissant/docs/croissant-spec-1.1.html. Like the card, it is made from the manifests and
depends on nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from webtext.base.parts.schemas import DOCUMENT
from webtext.clean.card.card import records_digest
from webtext.clean.card.facts import Facts
from webtext.clean.settings import CardSettings

CROISSANT = "croissant.json"
PARQUET = "application/x-parquet"
PARTS, DOCUMENTS = "parts", "documents"
_TYPES = {"string": "sc:Text", "int64": "cr:Int64", "double": "cr:Float64"}
_TERMS = (
    "arrayShape citeAs column containedIn equivalentProperty extract field fileObject fileProperty fileSet format includes "
    "isArray isLiveDataset jsonPath key md5 parentField path recordSet references regex repeated replace samplingRate "
    "separator source subField transform"
)
CONTEXT: dict[str, Any] = {
    "@language": "en",
    "@vocab": "https://schema.org/",
    "sc": "https://schema.org/",
    "cr": "http://mlcommons.org/croissant/",
    "rai": "http://mlcommons.org/croissant/RAI/",
    "dct": "http://purl.org/dc/terms/",
    "conformsTo": "dct:conformsTo",
    "data": {"@id": "cr:data", "@type": "@json"},
    "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
    "examples": {"@id": "cr:examples", "@type": "@json"},
    "name": {"@container": "@language"},
    "description": {"@container": "@language"},
    **{term: f"cr:{term}" for term in _TERMS.split()},
}
"""The context that the specification prescribes."""


def croissant(facts: Facts, settings: CardSettings) -> dict[str, Any]:
    """Return the description of the corpus, its files and columns."""
    corpus = facts.corpus
    optional = {"license": settings.license, "inLanguage": sorted(facts.languages)}
    return {
        "@context": CONTEXT,
        "@type": "sc:Dataset",
        "conformsTo": "http://mlcommons.org/croissant/1.1",
        "name": settings.name,
        "description": f"{corpus.records:,} texts that webtext collected and cleaned; README.md says from what and how.",
        "identifier": f"sha256:{records_digest(corpus)}",
        **{name: value for name, value in optional.items() if value},
        "distribution": [
            *_files(facts),
            {
                "@type": "cr:FileSet",
                "@id": PARTS,
                "name": PARTS,
                "encodingFormat": PARQUET,
                "includes": "part-*.parquet",
            },
        ],
        "recordSet": [
            {
                "@type": "cr:RecordSet",
                "@id": DOCUMENTS,
                "name": DOCUMENTS,
                "key": {"@id": f"{DOCUMENTS}/id"},
                "field": [_field(column) for column in DOCUMENT],
            }
        ],
    }


def write_croissant(facts: Facts, settings: CardSettings) -> None:
    """Write the description next to the corpus's parts."""
    facts.corpus.folder.write_object(CROISSANT, croissant(facts, settings))


def _files(facts: Facts) -> Iterator[dict[str, Any]]:
    for part in facts.corpus.parts:
        yield {
            "@type": "cr:FileObject",
            "@id": part.name,
            "name": part.name,
            "contentUrl": part.name,
            "contentSize": f"{part.bytes} B",
            "sha256": part.sha256,
            "encodingFormat": PARQUET,
        }


def _field(column: pa.Field) -> dict[str, Any]:
    """Return the description of a column: values, lists of values, or lists of structs."""
    repeated = pa.types.is_list(column.type)
    inner = column.type.value_type if repeated else column.type
    field = {
        "@type": "cr:Field",
        "@id": f"{DOCUMENTS}/{column.name}",
        "name": column.name,
        "description": column.metadata[b"meaning"].decode(),
        **({"isArray": True, "arrayShape": "-1"} if repeated else {}),
    }
    if pa.types.is_struct(inner):
        return field | {"subField": [_member(column.name, inner.field(i)) for i in range(inner.num_fields)]}
    return field | {"dataType": _TYPES[str(inner)], "source": _source(column.name)}


def _member(column: str, member: pa.Field) -> dict[str, Any]:
    return {
        "@type": "cr:Field",
        "@id": f"{DOCUMENTS}/{column}/{member.name}",
        "name": member.name,
        "dataType": _TYPES[str(member.type)],
        "source": _source(column) | {"transform": {"jsonPath": member.name}},
    }


def _source(column: str) -> dict[str, Any]:
    return {"fileSet": {"@id": PARTS}, "extract": {"column": column}}
