"""Parquet files whose footer can be read and of which a column is encrypted: pyarrow aborts at its description."""

from __future__ import annotations

import base64
import io

import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.parquet.encryption as pe


def encrypted_parquet(column: str, *, padded: bool) -> bytes:
    """Return a file of two rows with an id and the encrypted `column`.

    If `padded`, its footer is a byte longer, so that the encryption isn't noticed by the footer's length.
    """
    columns = pe.EncryptionConfiguration(footer_key="key", column_keys={"key": [column]}, plaintext_footer=True)
    properties = pe.CryptoFactory(lambda _: _Keys()).file_encryption_properties(pe.KmsConnectionConfig(), columns)
    table, file = pa.table({"id": ["one", "two"], column: ["a text", "another"]}), io.BytesIO()
    with pq.ParquetWriter(file, table.schema, encryption_properties=properties) as writer:
        writer.write_table(table)
    data = file.getvalue()
    n_bytes = int.from_bytes(data[-8:-4], "little")
    return data[:-8] + bytes(1) + (n_bytes + 1).to_bytes(4, "little") + data[-4:] if padded else data


class _Keys(pe.KmsClient):
    def __init__(self) -> None:
        super().__init__()

    def wrap_key(self, key_bytes: bytes, master_key_identifier: str) -> bytes:
        return base64.b64encode(key_bytes)

    def unwrap_key(self, wrapped_key: str, master_key_identifier: str) -> bytes:
        return base64.b64decode(wrapped_key)
