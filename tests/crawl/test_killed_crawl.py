"""A crawl killed at random moments loses nothing: `killed_crawl.py` kills it and reads everything back."""

from __future__ import annotations

import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "bench"))

from killed_crawl import crawl_and_kill  # noqa: E402

pytestmark = pytest.mark.slow  # test_pages_set.py has small forms
LIMITED = """
import resource, sys
from webtext.app.main import main
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv.pop(1)),) * 2)
main()
"""


def test_a_crawl_of_many_hosts_is_complete_after_many_kills(tmp_path: Path) -> None:
    said = crawl_and_kill(tmp_path, n_pages=300, n_hosts=40, n_kills=5, seed=2)
    assert "300 pages of 40 hosts" in said


@pytest.mark.parametrize("limit", [30_000, 100_000])
def test_a_full_disk_ends_with_an_error_and_the_run_resumes_with_space(
    limit: int, bodies: Any, web: Any, make_links: Any, tmp_path: Path
) -> None:
    """The system cuts the file off at `limit` bytes, like a full disk. All complete records are kept."""
    urls = [web.page(f"/{i}", f"<html>{i}" + "x" * 9000, host=i % 8 + 1) for i in range(20)]
    links, out = make_links(urls), tmp_path / "pages"
    verb = ["crawl", "fetch", links, "--out", str(out), "--delay", "0", "--allow-address", f"127.0.0.0/8:{web.port}"]
    failed = subprocess.run(
        [sys.executable, "-c", LIMITED, str(limit), *verb], capture_output=True, text=True, timeout=300, check=False
    )
    assert failed.returncode == 4
    assert "exceeds the limit on file sizes" in failed.stderr
    assert (out / "_open" / "part-00000.warc.gz").stat().st_size == limit
    web.requests.clear()
    subprocess.run([sys.executable, "-c", LIMITED, str(resource.RLIM_INFINITY), *verb], check=True, timeout=300)
    n_kept = limit // 10_500
    assert len(web.paths(1) + [path for host in range(2, 9) for path in web.paths(host)]) <= 20 - n_kept
    assert sorted(bodies(out)) == sorted(urls)
