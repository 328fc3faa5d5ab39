"""Errors keep their lines and exit code when they are pickled between processes."""

from __future__ import annotations

import pickle

import pytest

from webtext.base import errors


@pytest.mark.parametrize(
    ("kind", "exit_code"),
    [(errors.ConfigError, 2), (errors.InputError, 3), (errors.ShardCorrupt, 3)]
    + [(errors.NetworkError, 1), (errors.RunFailed, 1), (errors.MachineError, 4)],
)
def test_an_error_keeps_its_lines_and_exit_code_in_a_pickle(kind: type[errors.WebtextError], exit_code: int) -> None:
    error = pickle.loads(pickle.dumps(kind("what was wrong", "what to do")))
    assert type(error) is kind
    assert error.lines == ("what was wrong", "what to do")
    assert error.exit_code == exit_code


def test_an_error_of_four_lines_is_a_defect() -> None:
    with pytest.raises(AssertionError):
        errors.InputError("1", "2", "3", "4")
