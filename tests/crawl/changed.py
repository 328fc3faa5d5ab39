"""Run `webtext` with other values of constants of `webtext.crawl`: changed.py {"ROOM.MODULE.NAME": VALUE, ...} ARGUMENT..."""

from __future__ import annotations

import importlib
import json
import sys

from webtext.app.main import run

if __name__ == "__main__":
    for place, value in json.loads(sys.argv[1]).items():
        module, _, name = place.rpartition(".")
        setattr(importlib.import_module(f"webtext.crawl.{module}"), name, value)
    sys.exit(run(sys.argv[2:]))
