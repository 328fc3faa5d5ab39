"""A verb of several stages with --share: rerunning the shares completes it, with the bytes of one run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "clean"))

from set_contents import contents  # noqa: E402
from warc_files import article, page, write_pages  # noqa: E402

from webtext.app.main import run  # noqa: E402
from webtext.base.parts import shares  # noqa: E402

pytestmark = pytest.mark.slow
CLEAN = ["clean", "run"]
SHARE = """
import sys
from webtext.base.parts import shares
shares.POLL_SECONDS, shares.GRACE_SECONDS = 0.1, float(sys.argv[1])
from webtext.app.main import run
raise SystemExit(run(sys.argv[2:]))
"""


@pytest.fixture
def build(tmp_path: Path) -> Path:
    """Pages in five parts, cleaned by one run; every part has a page that another part has as well."""
    urls = [[f"http://s{i}.example.org/{j}" for j in range(4)] for i in range(5)]
    texts = [[article(4 * i + j if j else 100, 60) for j in range(4)] for i in range(5)]
    parts = [
        [{"url": url, "body": page(text)} for url, text in zip(*each, strict=True)]
        for each in zip(urls, texts, strict=True)
    ]
    write_pages(tmp_path / "pages", parts)
    assert run([*CLEAN, str(tmp_path / "pages"), "--out", str(tmp_path / "whole"), "--quiet"]) == 0
    return tmp_path


def of_share(build: Path, k: int, n: int) -> list[str]:
    return ["--out", str(build / "shared"), "--workers", "1", "--quiet", "--share", f"{k}/{n}"]


def test_shares_one_after_another_complete_it_when_they_are_rerun(build: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shares, "POLL_SECONDS", 0.01)
    monkeypatch.setattr(shares, "GRACE_SECONDS", 0.0)
    for _ in range(20):
        for k in (1, 2, 3):
            assert run([*CLEAN, str(build / "pages"), *of_share(build, k, 3)]) == 0
        if (build / "shared/corpus/manifest.json").exists():
            break
    assert contents(build / "shared") == contents(build / "whole")


def test_shares_at_once_complete_all_stages_together(build: Path) -> None:
    """Both continue when the set of a stage is sealed; the last stages of all are those of dedup and the corpus."""
    shared = [[*CLEAN, str(build / "pages"), *of_share(build, k, 2)] for k in (1, 2)]
    processes = [subprocess.Popen([sys.executable, "-c", SHARE, "30", *command]) for command in shared]
    assert [process.wait(300) for process in processes] == [0, 0]
    assert contents(build / "shared") == contents(build / "whole")
