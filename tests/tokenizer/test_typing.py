"""Types for editors and type checkers: the stubs of the native modules, and a user's program."""

from __future__ import annotations

import ast
import builtins
import importlib
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
NATIVE = ["_bpe", "_trainer"]

PROGRAM = """
from __future__ import annotations

from typing import assert_type

import numpy as np
import polars as pl
from numpy.typing import NDArray

from webtext.tokenizer import Tokenizer

Tokens = NDArray[np.uint16] | NDArray[np.uint32]

tok = Tokenizer.train(["the dog"], vocab_size=300, special_tokens=["<|endoftext|>"])
assert_type(Tokenizer.load("tokenizer.json"), Tokenizer)
assert_type(tok.encode("the dog"), list[int])
assert_type(tok.encode(b"the dog", allowed_special="all"), list[int])
assert_type(tok.encode(bytearray(b"the dog"), allowed_special={"<|endoftext|>"}), list[int])
assert_type(tok.encode_numpy("the dog"), Tokens)
assert_type(tok.encode_batch(line for line in open("text")), list[list[int]])
assert_type(tok.encode_flat(["a", b"b"], threads=2), tuple[Tokens, NDArray[np.int64]])
assert_type(tok.encode_buffer(memoryview(b"ab"), [0, 1, 2], out=np.empty(9, np.uint16)), tuple[Tokens, NDArray[np.int64]])
assert_type(tok.encode_with_offsets("a", unit="bytes"), tuple[list[int], list[tuple[int, int]]])
assert_type(tok.encode_flat(pl.Series(["a"])), tuple[Tokens, NDArray[np.int64]])
assert_type(tok.count("a"), int)
assert_type(tok.decode([1, 2]), str)
assert_type(tok.decode(np.array([1, 2], np.uint16)), str)
assert_type(tok.decode_bytes(iter([1, 2])), bytes)
decoder = tok.decode_stream()
assert_type(decoder.push(1) + decoder.push([2]) + decoder.push(np.array([3])) + decoder.finish(), str)
assert_type(tok.eot_id, int | None)
assert_type(tok.special_tokens, dict[str, int])
assert_type(tok.hash, str)

tok.encode(5)  # E: arg-type
tok.encode("a", allowed_special=5)  # E: arg-type
tok.encode_with_offsets("a", unit="words")  # E: arg-type
tok.decode(["a"])  # E: list-item
"""


def stub(module: str) -> ast.Module:
    path = importlib.import_module(f"webtext.tokenizer.{module}").__file__
    assert path is not None
    return ast.parse((Path(path).parent / f"{module}.pyi").read_text(encoding="utf-8"))


@pytest.mark.parametrize("module", NATIVE)
def test_stubs_name_every_public_function_and_class(module: str) -> None:
    found = {node.name for node in stub(module).body if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    native = importlib.import_module(f"webtext.tokenizer.{module}")
    assert found == {name for name, value in vars(native).items() if callable(value) and not name.startswith("__")}


@pytest.mark.parametrize("module", NATIVE)
def test_stubs_have_specific_types_and_docstrings(module: str) -> None:
    tree = stub(module)
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    assert functions
    imported = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
    known = {alias.name.split(".")[0] for node in imported for alias in node.names} | set(dir(builtins))
    known |= {node.name for node in tree.body if isinstance(node, ast.ClassDef)}
    for function in functions:
        arguments = [*function.args.args, *function.args.kwonlyargs]
        types = [argument.annotation for argument in arguments if argument.arg != "self"] + [function.returns]
        for type_ in types:
            assert type_ is not None, f"{function.name} has an argument without type"
            said = ast.unparse(type_).replace("NDArray[Any]", "NDArray")  # an array of any integers
            said = re.sub(r"Callable\[\[.*?\], object\]", "", said)  # a caller's function may return anything
            assert not re.search(r"\b(object|Any)\b", said), f"{function.name}: {said}"
            assert {node.id for node in ast.walk(type_) if isinstance(node, ast.Name)} <= known, ast.unparse(type_)
        is_overload = any("overload" in ast.unparse(decorator) for decorator in function.decorator_list)
        is_special = function.name.startswith("__")
        assert ast.get_docstring(function) or is_overload or is_special, f"{function.name} has no docstring"


@pytest.mark.slow
def test_a_users_program_has_the_types_it_expects(tmp_path: Path) -> None:
    """mypy reads the package through links, since it doesn't follow editable installs. `# E:` marks expected errors."""
    package = tmp_path / "packages" / "webtext"
    package.mkdir(parents=True)
    for name in ("base", "tokenizer"):
        (package / name).symlink_to(ROOT / name)
    (package / "__init__.py").write_text("")
    (package / "py.typed").write_text("")
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    command = [
        sys.executable,
        "-m",
        "mypy",
        "--strict",
        "--no-error-summary",
        "--no-incremental",
        "--follow-imports=silent",
    ]
    done = subprocess.run(
        [*command, str(program)],
        env=os.environ | {"MYPYPATH": str(tmp_path / "packages")},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert not done.stderr
    errors = {int(line.split(":")[1]): line for line in done.stdout.splitlines() if ": error:" in line}
    expected = {
        number: line.split("# E: ")[1] for number, line in enumerate(PROGRAM.splitlines(), 1) if "# E: " in line
    }
    assert errors.keys() == expected.keys(), done.stdout
    for number, code in expected.items():
        assert f"[{code}]" in errors[number]
