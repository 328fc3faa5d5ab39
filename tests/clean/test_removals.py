"""Removal lists: what a line names, that nothing else is removed, and which lines are invalid."""

from __future__ import annotations

import contextlib
import json
import pickle
from pathlib import Path

import pytest
from click.testing import CliRunner
from elsewhere import only_tasks_read
from hypothesis import given
from hypothesis import strategies as st
from part_sets import document, made_set
from set_contents import rows
from warc_files import article, page, site, write_pages

from webtext.base.errors import DryRun, InputError
from webtext.base.parts.identifiers import link_id
from webtext.base.parts.partset import PartSet
from webtext.base.run import Run
from webtext.clean import removals as removals_module
from webtext.clean.command import group
from webtext.clean.dedup.settings import DedupSettings
from webtext.clean.language import LanguageSettings
from webtext.clean.pipeline import CleanSettings, clean_pages, dedup_documents, filter_documents
from webtext.clean.removals import Removals, Requests
from webtext.clean.rules.thresholds import RuleSettings
from webtext.clean.settings import RemovalSettings
from webtext.clean.steps import Cleaning


def listed(folder: Path, *lines: str) -> RemovalSettings:
    """Write a removal list of these lines."""
    path = folder / f"requests-{len(list(folder.glob('requests-*')))}.txt"
    path.write_text("\n".join(lines), encoding="utf-8")
    return RemovalSettings(remove=(str(path),))


def state(folder: Path) -> dict[str, tuple[int, bytes]]:
    """Every file's time and bytes, except for files that record when and where a run took place."""
    files = (p for p in folder.rglob("*") if p.is_file() and p.name != "run.json")
    return {str(p.relative_to(folder)): (p.stat().st_mtime_ns, p.read_bytes()) for p in files}


def cleaned(pages: PartSet, out: Path, run: Run, remove: RemovalSettings) -> Cleaning:
    return clean_pages([pages.folder.url], str(out), CleanSettings(remove=remove), run)


def test_a_page_is_removed_and_no_duplicate_of_it_enters(tmp_path: Path, run: Run) -> None:
    """`asked` has most karma, so its copy and a text near it are its duplicates with and without the list."""
    text = article(1, 60)
    near = text + " And one more sentence is added at the end of this copy."
    sites = {"asked": (90, text), "twin": (3, text), "near": (5, near), "other": (4, article(2, 60))}
    pages = write_pages(tmp_path / "pages", [[site(name, t, karma=k)] for name, (k, t) in sites.items()])
    before = cleaned(pages, tmp_path / "before", run, RemovalSettings())
    remove = listed(tmp_path, "# a letter of May", "https://asked.example/", "example.org")
    result = cleaned(pages, tmp_path / "build", run, remove)
    assert [row["url"] for row in rows(result.corpus)] == ["http://other.example/"]
    dropped = {row["url"].split("/")[2].split(".")[0]: row for row in rows(result.dropped)}
    asked = dropped.pop("asked")
    told = {"stage": "remove", "reason": "removed_on_request", "request": "https://asked.example/", "text_start": ""}
    assert asked == asked | told | dict.fromkeys(("value", "threshold", "duplicate_of"))
    assert [*dropped.values()] == rows(before.dropped)
    assert {row["duplicate_of"] for row in dropped.values()} == {asked["id"]}
    assert result.counts.to_json() == {
        "records_in": 4,
        "kept": 1,
        "dropped": {"exact_duplicate": 1, "near_duplicate": 1, "removed_on_request": 1},
        "failed": {},
    }
    assert result.removed is not None
    assert [line.written for line in result.removed.unmatched] == ["example.org"]
    card = (tmp_path / "build" / "corpus" / "README.md").read_text()
    assert "  - documents that a removal list names were left out\n" in card


def test_a_duplicate_of_another_document_is_removed_alone(tmp_path: Path, run: Run) -> None:
    twins = [site(karma, article(1, 60), karma=karma) for karma in (3, 90)]
    pages = write_pages(tmp_path / "pages", [twins])
    result = cleaned(pages, tmp_path / "build", run, listed(tmp_path, "3.example"))
    assert [row["url"] for row in rows(result.corpus)] == ["http://90.example/"]
    assert result.counts.dropped == {"removed_on_request": 1}


def test_a_link_that_led_elsewhere_names_the_document_it_led_to(tmp_path: Path, run: Run) -> None:
    page_url, other = "http://page.example/", "http://leads-there.example/"
    answers = [{"url": page_url, "body": page(article(1, 60))}]
    answers.append({"url": other, "outcome": "linked", "final_url": page_url})
    pages = write_pages(tmp_path / "pages", [answers])
    assert rows(cleaned(pages, tmp_path / "build", run, listed(tmp_path, other)).corpus) == []


def test_only_parts_with_removed_documents_are_written_again(tmp_path: Path, run: Run) -> None:
    """Of four parts the second contains the page; documents, signals and pairs don't change."""
    bodies = {name: article(i, 60) for i, name in enumerate(("a", "b", "asked", "c", "d"), 2)}
    parts = [["a"], ["b", "asked"], ["c"], ["d"]]
    pages = write_pages(tmp_path / "pages", [[site(name, bodies[name]) for name in part] for part in parts])
    out = tmp_path / "build"
    cleaned(pages, out, run, RemovalSettings())
    before = state(out)
    result = cleaned(pages, out, run, listed(tmp_path, "asked.example"))
    assert result.counts.dropped == {"removed_on_request": 1}
    assert {"removal_list"} < {parent["kind"] for parent in result.corpus.manifest["parents"]}
    after = state(out)
    changed = {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}
    parts_of = {f"{kind}/{name}" for kind in ("corpus", "dropped")
                for name in ("manifest.json", "part-00001.parquet", "_parts/00001.json")}  # fmt: skip
    assert changed <= parts_of | {"dropped/part-00001.exchange", "corpus/README.md", "losses.json"}
    assert {"corpus/manifest.json", "dropped/part-00001.parquet"} <= changed
    cleaned(pages, out, run, RemovalSettings())
    assert {name: data for name, (_, data) in state(out).items()} == {name: data for name, (_, data) in before.items()}


@pytest.mark.usefixtures("clean")
def test_lines_that_name_nothing_change_nothing_and_are_reported(tmp_path: Path) -> None:
    pages = write_pages(tmp_path / "pages", [[site("a", article(1, 60))]])
    arguments = ["run", pages.folder.url, "--out", str(tmp_path / "build"), "--json"]
    CliRunner().invoke(group, arguments, catch_exceptions=False)
    before = state(tmp_path / "build")
    lines = tmp_path / "lines.txt"
    lines.write_text("example.org\n# nobody\nhttps://a.example/other\n")
    done = CliRunner().invoke(group, [*arguments, "--remove", str(lines)], catch_exceptions=False)
    assert json.loads(done.stdout)["removal"] == {
        "lines": 2,
        "unmatched": [
            {"list": str(lines), "number": 1, "written": "example.org"},
            {"list": str(lines), "number": 3, "written": "https://a.example/other"},
        ],
        "removed_on_request": 0,
    }
    assert f"2 of 2 lines of removal lists name no document here:\n  '{lines}' line 1: 'example.org'" in done.stderr
    assert state(tmp_path / "build") == before


def test_filter_and_dedup_alone_take_lists_and_a_dry_run_changes_nothing(tmp_path: Path, run: Run) -> None:
    lines = [json.dumps({"id": name, "text": article(i, 60), "url": url})
             for i, (name, url) in enumerate([("a", "HTTP://Gone.example"), ("b", "no url"), ("c", None)])]  # fmt: skip
    (tmp_path / "texts.jsonl").write_text("\n".join(lines))
    inputs, remove = [str(tmp_path / "texts.jsonl")], listed(tmp_path, "http://gone.example/", "id:c")
    filtered = filter_documents(inputs, str(tmp_path / "f"), RuleSettings(), LanguageSettings(), run, remove)
    result = dedup_documents(inputs, str(tmp_path / "d"), DedupSettings(), run, remove)
    for each in (filtered, result):
        assert each.counts.dropped == {"removed_on_request": 2}
        assert [row["request"] for row in rows(each.dropped)] == ["http://gone.example/", "id:c"]
    before = state(tmp_path)
    with pytest.raises(DryRun):
        dedup_documents(inputs, str(tmp_path / "d"), DedupSettings(), Run(run.engine, run.console, dry_run=True))
    assert state(tmp_path) == before


def test_removals_are_found_elsewhere_and_the_driver_reads_no_document(tmp_path: Path, elsewhere: Run) -> None:
    """Eleven parts in groups of two: links that are no longer collected, and lines."""
    parts = [[f"http://{name}{index}.example/" for name in "abcd"] for index in range(11)]
    made = [[document(url, "") | {"link_ids": [link_id(url)], "url": url} for url in part] for part in parts]
    documents = made_set(tmp_path / "documents", "documents", made)
    urls = [f"http://{name}{i}.example/" for name in "abd" for i in range(11)]
    link = {"url_raw": "", "domain": "", "karma": 3, "karma_sum": 3, "first_created": 0, "posts": [], "split": "train"}
    collected = made_set(tmp_path / "links", "links", [[link | {"link_id": link_id(u), "url": u} for u in urls]])
    others = "".join(f"http://other{number}.example/\n" for number in range(2000))
    (tmp_path / "requests.txt").write_text("d7.example\nd11.example\n" + others)
    elsewhere.engine.max_message_bytes = 16 << 10  # type: ignore[attr-defined]
    removals = Removals.of(RemovalSettings(remove=(str(tmp_path / "requests.txt"),)), collected)
    with only_tasks_read():
        found = removals.find(documents, elsewhere)
    assert [rows.tolist() for rows in found.unlinked] == [[2]] * 11
    assert [[*rows] for rows in found.requested] == [[3] if i == 7 else [] for i in range(11)]
    assert [line.written for line in found.unmatched[:2]] == ["d11.example", "http://other0.example/"]


def test_a_list_of_requests_that_changes_before_a_worker_reads_it_is_an_error(tmp_path: Path) -> None:
    requests = read(tmp_path, "one.example\ntwo.example\n")
    assert pickle.loads(pickle.dumps(requests)).lines == requests.lines
    call = pickle.dumps(requests)
    read(tmp_path, "one.example\nthree.example\n")
    removals_module._read_again.cache_clear()
    with pytest.raises(InputError, match="changed while it was read"):
        pickle.loads(call)


ID = "0f115db062b7c0dd030b16878c99dea5"


def read(folder: Path, text: str | bytes, name: str = "requests.txt") -> Requests:
    (folder / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    return Requests.read([str(folder / name)])


def named(requests: Requests, identifier: str = "x", links: tuple[str, ...] = (), url: str | None = None) -> list[str]:
    return [line.written for line in requests.lines_for(identifier, links, url)]


def test_a_line_is_a_url_a_domain_or_an_id_and_text_after_a_hash_is_a_comment(tmp_path: Path) -> None:
    requests = read(
        tmp_path,
        f"\ufeff# asked for in May\r\nhttps://example.org/a?b=1  # a page\n\n  example.net\t# a domain\n{ID}\nid:urn:uuid:1#c\n",
    )
    assert [line.number for line in requests.lines] == [2, 4, 5, 6]
    assert named(requests, url="https://example.org/a?b=1") == ["https://example.org/a?b=1"]
    assert named(requests, url="http://other.example/") == []
    assert named(requests, ID) == [ID]
    assert named(requests, "urn:uuid:1#c") == ["id:urn:uuid:1#c"]


@pytest.mark.parametrize(
    ("url", "is_named"),
    [
        ("https://example.org/", True),
        ("http://www.example.org:8080/a", True),
        ("http://EXAMPLE.org./a", True),
        ("http://notexample.org/", False),
        ("http://example.org.evil.example/", False),
        ("http://other.example/?u=example.org", False),
        ("no url", False),
        (None, False),
    ],
)
def test_a_domain_includes_its_subdomains(tmp_path: Path, url: str | None, is_named: bool) -> None:
    assert named(read(tmp_path, "Example.ORG."), url=url) == ["Example.ORG."] * is_named


def test_a_domain_in_any_script_and_an_address_are_domains(tmp_path: Path) -> None:
    requests = read(tmp_path, "bücher.example\n192.0.2.7\n[2001:db8::1]\n")
    assert named(requests, url="http://shop.xn--bcher-kva.example/") == ["bücher.example"]
    assert named(requests, url="http://192.0.2.7/a") == ["192.0.2.7"]
    assert named(requests, url="http://[2001:DB8::1]/") == ["[2001:db8::1]"]


def test_a_url_covers_both_schemes_any_spelling_and_every_document_its_link_led_to(tmp_path: Path) -> None:
    requests = read(tmp_path, "HTTPS://Example.org:443/a/../b#part")
    for url in ("http://example.org/b", "https://example.org/b"):
        assert named(requests, url=url) == ["HTTPS://Example.org:443/a/../b#part"]
        assert len(named(requests, links=("0" * 32, link_id(url)), url="http://elsewhere.example/")) == 1
    assert named(requests, url="https://example.org/b/c") == []


def test_all_lines_that_name_a_document_are_returned_the_most_specific_first(tmp_path: Path) -> None:
    requests = read(tmp_path, f"example.org\na.example.org\nhttp://a.example.org/\n{ID}\nexample.org # again")
    lines = requests.lines_for(ID, (), "https://a.example.org/")
    assert [line.number for line in lines] == [4, 3, 2, 1]


def test_the_parent_is_the_set_of_matching_lines_in_any_order_and_file(tmp_path: Path) -> None:
    one = read(tmp_path, "a.example # x\nb.example\nc.example", "one.txt")
    two = read(tmp_path, "b.example\n# y\na.example", "two.txt")
    assert one.parent(one.lines[:2]).hash == two.parent(two.lines).hash != one.parent(one.lines).hash


@pytest.mark.parametrize(
    "line",
    ["localhost", "example.org/page", "ftp://example.org/", "*.example.org", ".example.org", "two words", "id:",
     "someone@example.org", "http://", "ABC", ID + "0", "\0", "http ://x.y"],
)  # fmt: skip
def test_an_invalid_line_is_rejected_with_its_number(tmp_path: Path, line: str) -> None:
    with pytest.raises(InputError) as refused:
        read(tmp_path, f"# first\nexample.org\n{line}\n")
    assert "requests.txt' line 3: " in refused.value.lines[0]
    assert len(refused.value.lines) <= 3


def test_a_list_that_is_not_a_file_in_utf_8_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="line 2 is not UTF-8"):
        read(tmp_path, b"example.org\nb\xfccher.example\n")
    for name in ("nowhere.txt", "a folder"):
        (tmp_path / "a folder").mkdir(exist_ok=True)
        with pytest.raises(InputError, match=f"{name}' does not exist or is not a file"):
            Requests.read([str(tmp_path / name)])


def test_a_list_of_comments_names_nothing(tmp_path: Path) -> None:
    assert read(tmp_path, "# nobody asked yet\n\n").lines == []


@given(st.text(max_size=60))
def test_any_line_is_read_or_rejected(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    with contextlib.suppress(InputError):
        read(tmp_path_factory.getbasetemp(), text.encode("utf-8", "replace")).lines_for(text, (text,), text)
