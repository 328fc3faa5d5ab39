"""The folder of real data that some benches read: their first argument, else WEBTEXT_TEST_DATA. Without it they skip.

It has the layout of the tests' data: corpora/, crawl/, extract/, gpt2/, langid/, neardup/.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path


def real_data(given: str | Path | None = None) -> Path:
    """Return the folder; if neither the argument nor the variable names one, print that and exit with success."""
    named = given or os.environ.get("WEBTEXT_TEST_DATA")
    if not named:
        print(f"{Path(sys.argv[0]).name}: skipped, no real data: name its folder or set WEBTEXT_TEST_DATA")
        raise SystemExit(0)
    folder = Path(named)
    if not folder.is_dir():
        raise SystemExit(f"{Path(sys.argv[0]).name}: '{folder}' is not a folder")
    return folder
