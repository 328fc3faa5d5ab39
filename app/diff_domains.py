"""How much of two corpora each domain is, and which domains moved most. Memory is a row for each domain."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

MOVED_DOMAINS = 10
MEASURE = (
    "a domain's share of the documents (bytes of text) in B less its share in A, in percentage points; "
    "moved in all: half the sum of these without their signs"
)
FOLD_AT = 1 << 20  # rows of partial sums that are held before they are added up
SUMS = ("documents_a", "bytes_a", "documents_b", "bytes_b")
SCHEMA = pa.schema([("domain", pa.string()), *((name, pa.int64()) for name in SUMS)])


class DomainSizes:
    """Documents and bytes of text of each domain, in A (side 0) and in B (side 1)."""

    def __init__(self) -> None:
        self._partial: list[pa.Table] = []
        self._n_rows = 0

    def add(self, side: int, domains: pa.Array, n_bytes: pa.Array) -> None:
        """Count documents: the domain of each, null where it is unknown, and the bytes of its text."""
        nothing = pa.array(np.zeros(len(domains), np.int64))
        sizes = [pa.array(np.ones(len(domains), np.int64)), n_bytes.cast(pa.int64())]
        columns = [nothing, nothing, *sizes] if side else [*sizes, nothing, nothing]
        self._partial.append(
            _added_up([pa.Table.from_arrays([pc.fill_null(domains, "unknown"), *columns], schema=SCHEMA)])
        )
        self._n_rows += self._partial[-1].num_rows
        if self._n_rows > FOLD_AT:
            self._partial = [_added_up(self._partial)]
            self._n_rows = 0  # what is folded does not count: else many domains would be folded each time

    def shifts(self) -> dict[str, Any]:
        """What moved, with its measure: of all domains together, and the domains that moved most by documents and by bytes."""
        table = _added_up(self._partial).sort_by("domain")
        names = table["domain"].to_pylist()
        sums = {name: table[name].to_numpy() for name in SUMS}
        found: dict[str, Any] = {
            "measure": MEASURE,
            "domains_a": int(np.count_nonzero(sums["documents_a"])),
            "domains_b": int(np.count_nonzero(sums["documents_b"])),
            "bytes_a": int(sums["bytes_a"].sum()),
            "bytes_b": int(sums["bytes_b"].sum()),
        }
        for what in ("documents", "bytes"):
            a, b = sums[f"{what}_a"], sums[f"{what}_b"]
            share_a, share_b = _shares(a), _shares(b)
            shift = share_b - share_a
            found[f"moved_{what}_ratio"] = float(np.abs(shift).sum() / 2)
            most = [int(i) for i in np.lexsort((np.arange(len(shift)), -np.abs(shift)))[:MOVED_DOMAINS] if shift[i]]
            found[f"by_{what}"] = [
                {"domain": names[i], "a": int(a[i]), "b": int(b[i]), "a_ratio": float(share_a[i]),
                 "b_ratio": float(share_b[i])}
                for i in most
            ]  # fmt: skip
        return found


def _shares(sizes: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    return sizes / max(int(sizes.sum()), 1)


def _added_up(partial: list[pa.Table]) -> pa.Table:
    sums = pa.concat_tables([SCHEMA.empty_table(), *partial]).group_by("domain")
    added = sums.aggregate([(name, "sum") for name in SUMS])
    return added.select(["domain", *(f"{name}_sum" for name in SUMS)]).rename_columns(SCHEMA.names)
