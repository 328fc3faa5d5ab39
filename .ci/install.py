"""Install packages into .venv by uv, from the indexes that pip is configured for: `.ci/install.py [OPTION] PACKAGE ...`.

uv is several times as fast as pip, but doesn't read pip's configuration, so that is translated. All indexes
count equally, as for pip: the version that constraints.txt names is taken from whichever has it.
"""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

BIN = Path(__file__).resolve().parents[1] / ".venv" / "bin"
OPTIONS = {
    "index-url": "--default-index",
    "extra-index-url": "--index",
    "find-links": "--find-links",
    "trusted-host": "--allow-insecure-host",
}


def main() -> None:
    """Run `uv pip install` with pip's indexes and this command's arguments."""
    pip = (BIN / "python", "-m", "pip")
    if not (BIN / "uv").exists():
        command = [*pip, "install", "--disable-pip-version-check", "--quiet", "-c", "constraints.txt", "uv"]
        subprocess.run(command, check=True)
    command = [BIN / "uv", "pip", "install", "--python", BIN / "python", "--quiet", "-c", "constraints.txt"]
    command += ["--index-strategy", "unsafe-best-match", "--no-build-isolation"]
    listed = subprocess.run([*pip, "config", "list"], capture_output=True, text=True, check=True).stdout
    for line in listed.splitlines():
        key, _, value = line.partition("=")
        name, words = key.rpartition(".")[2], str(ast.literal_eval(value)).split()
        if name == "cert":
            os.environ.setdefault("SSL_CERT_FILE", words[0])
        command += [word for each in words if name in OPTIONS for word in (OPTIONS[name], each)]
    raise SystemExit(subprocess.run([*command, *sys.argv[1:]]).returncode)


if __name__ == "__main__":
    main()
