"""The part set of signatures: a row for each document, whatever happens to it."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from dedup_sets import corpus, document, write_set
from set_contents import contents

from webtext.base.errors import DryRun, InputError
from webtext.base.parts.identifiers import text_digest
from webtext.base.parts.partset import PartSet
from webtext.base.parts.stage import SetWriter
from webtext.base.run import Run
from webtext.clean.dedup import sign
from webtext.clean.dedup.sign import minhash_of, sign_documents, signed_rows


def test_each_document_has_its_facts_and_the_minhash_of_its_text(tmp_path, run):
    documents = [*corpus(3), document("silent", "— 🎉", karma=3, date=4, split="validation")]
    given = write_set(tmp_path / "given", documents, 3)
    signatures = sign_documents(given, str(tmp_path / "signatures"), run)
    assert signatures.counts.kept == signatures.records == len(documents)
    for part in range(3):
        (rows, values), texts = next(signed_rows(signatures, part)), given.table(part)
        for name in ("id", "text_digest", "karma", "date", "split"):
            assert rows[name].to_pylist() == texts[name].to_pylist()
        assert (values == [minhash_of(text) for text in texts["text"].to_pylist()]).all()
        assert rows["has_words"].to_pylist() == [id_ != "silent" for id_ in texts["id"].to_pylist()]
        assert rows["failed"].null_count == len(rows)
    assert values.dtype == np.uint32


def test_more_rows_than_a_block_are_read_in_order(tmp_path, run):
    given = write_set(tmp_path / "given", [document(f"{i}", f"text number {i}") for i in range(2500)])
    signatures = sign_documents(given, str(tmp_path / "signatures"), run)
    read = list(signed_rows(signatures, 0, ["id"]))
    assert len(read) > 1
    assert [id_ for rows, _ in read for id_ in rows["id"].to_pylist()] == [f"{i}" for i in range(2500)]
    values = np.concatenate([values for _, values in read])
    assert all((values[i] == minhash_of(f"text number {i}")).all() for i in (0, 1023, 1024, 2499))


def test_a_text_that_is_too_long_says_so_and_is_signed_like_one_without_words(tmp_path, run):
    given = write_set(tmp_path / "given", [document("long", "word " * 2_000_001), document("short", "a word")])
    signatures = sign_documents(given, str(tmp_path / "signatures"), run)
    ((found, values),) = signed_rows(signatures, 0)
    assert found["failed"].to_pylist() == ["too_many_bytes", None]
    assert found["has_words"].to_pylist() == [False, True]
    assert (values[0] == 0xFFFFFFFF).all()


def test_a_row_whose_text_cannot_be_signed_keeps_its_place(tmp_path, alone, monkeypatch):
    """The worker is this process, so that a function in it can be replaced."""
    from webtext.base.parts.partset import SetName
    from webtext.base.parts.partwriter import PartWriter
    from webtext.base.parts.stage import PartContext, PartTask
    from webtext.base.storage import Folder
    from webtext.base.workers.attempt import Attempt

    def raises(texts: pa.Array, *more: int):
        if "poison" in texts.to_pylist():
            raise ValueError("a cause")
        return signs(texts, *more)

    signs = sign.sign_batch
    monkeypatch.setattr(sign, "sign_batch", raises)
    given = write_set(tmp_path / "given", [document(id_, id_) for id_ in ("a", "poison", "b")])
    writer = PartWriter(Folder(tmp_path / "out"), "signatures", 0, key="k")
    payload = (SetName.of(given), 0)
    sign._sign_part(PartContext(Attempt(), {"signatures": writer}), PartTask(index=0, sources=(), payload=payload))
    part = writer.publish()
    assert (part.records, part.counts.kept, part.counts.failed) == (3, 2, {"raised": 1})
    values = np.fromfile(tmp_path / "out" / "part-00000.signatures", "<u4").reshape(3, 128)
    assert (values == [minhash_of("a"), [0xFFFFFFFF] * 128, minhash_of("b")]).all()


def test_signatures_are_equal_for_any_number_of_workers_and_made_once(tmp_path, run, alone):
    given = write_set(tmp_path / "given", corpus(4), 4)
    one = sign_documents(given, str(tmp_path / "one"), run)
    sign_documents(given, str(tmp_path / "two"), alone)
    assert contents(tmp_path / "one") == contents(tmp_path / "two")
    stamp = (tmp_path / "one" / "part-00003.signatures").stat().st_mtime_ns
    (tmp_path / "one" / "part-00001.signatures").unlink()
    assert sign_documents(given, str(tmp_path / "one"), run).hash == one.hash
    assert (tmp_path / "one" / "part-00003.signatures").stat().st_mtime_ns == stamp
    with pytest.raises(DryRun):
        sign_documents(given, str(tmp_path / "new"), Run(run.engine, run.console, dry_run=True))


def test_a_set_with_too_few_signatures_is_rejected(tmp_path, run):
    """Whoever wrote the set, it is intact by its own hashes."""
    recipe = sign.signature_recipe(sign.STAGE)
    writer = SetWriter(str(tmp_path / "signatures"), "signatures", recipe)
    row = {"id": "a", "text_digest": text_digest("a"), "split": "train", "has_words": True}
    with writer.part(0, key="0") as part:
        part.write([row])
        part.attach("part-00000.signatures").write_bytes(bytes(4 * 127))
        made = writer.seal([part.publish()])
    with pytest.raises(InputError, match="does not have a signature for each document"):
        next(signed_rows(PartSet.open(made.folder.url), 0))
