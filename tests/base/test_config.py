"""Settings: unknown keys are errors with a did-you-mean, values must have the setting's type."""

from __future__ import annotations

import os
import time
import tracemalloc
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import pytest

from webtext.base.config import (
    all_settings,
    changed,
    from_table,
    load_config,
    options,
    read_sections,
    recipe_settings,
    section_of,
    setting,
    several_values,
)
from webtext.base.errors import ConfigError, InputError, WebtextError


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    min_karma: int = setting(3, "keep posts with at least this score")
    ratio: float = setting(0.05, "share held out")
    before: str | None = setting("2018", "cutoff")
    hosts: tuple[str, ...] = setting((), "hosts")
    obey: bool = setting(True, "obey robots.txt")
    delay: float = setting(1.0, "seconds between requests", in_recipe=False)
    window: int | Literal["auto"] = setting("auto", "days that count", in_recipe=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Related:
    low: int = setting(1, "smallest")
    high: int = setting(2, "largest")
    name: str = setting("x", "name")

    def __post_init__(self) -> None:
        if not self.name:
            raise ConfigError("name is empty")
        if self.low > self.high:
            raise ConfigError("low is above high")


KNOWN = {"crawl.links": Example, "train": Example}


def test_a_file_and_overrides_give_settings(tmp_path: Path) -> None:
    path = tmp_path / "build.toml"
    path.write_text('[crawl.links]\nmin_karma = 5\nhosts = ["a", "b"]\nratio = 1\n')
    overrides = ["crawl.links.min_karma=7", "crawl.links.before=none", "crawl.links.obey=false"]
    config = load_config(str(path), overrides)
    made = read_sections(config, lambda: KNOWN)
    assert made["crawl.links"] == Example(min_karma=7, ratio=1.0, before=None, hosts=("a", "b"), obey=False)


def test_a_setting_may_take_a_word_in_place_of_a_number() -> None:
    assert from_table(Example, {"window": 3}, "train").window == 3
    assert from_table(Example, {"window": "auto"}, "train").window == "auto"


def test_a_date_of_toml_is_the_string_that_a_moment_is_written_as() -> None:
    for written, read in (("2018-01-02", "2018-01-02"), ("2018-01-02T03:04:05Z", "2018-01-02T03:04:05+00:00")):
        assert read_sections(load_config(None, [f"train.before={written}"]), lambda: KNOWN)["train"].before == read


def test_only_what_can_change_a_record_is_in_the_recipe() -> None:
    expected = {"min_karma": 3, "ratio": 0.05, "before": "2018", "hosts": ["a"], "obey": True}
    assert recipe_settings(Example(hosts=("a",))) == expected


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (
            {"crawl": {"links": {"min_karm": 3}}},
            r"unknown key 'min_karm' in \[crawl.links\]\ndid you mean 'min_karma'\?",
        ),
        ({"crawl": {"lnks": {"min_karma": 3}}}, r"unknown section \[crawl.lnks\]\ndid you mean 'crawl.links'\?"),
        ({"trian": {"min_karma": 3}}, r"unknown section \[trian\]\ndid you mean 'train'\?"),
        ({"train": {"inner": {"x": 1}}}, r"unknown section \[train.inner\]"),
        ({"crawl": {"min_karma": 3, "links": {}}}, r"unknown section \[crawl\]"),
        ({"min_karma": 3}, "is outside any section"),
        ({"train": {"min_karma": "3"}}, "min_karma = '3': expected a whole number"),
        ({"train": {"min_karma": True}}, "min_karma = True: expected a whole number"),
        ({"train": {"min_karma": 3.5}}, "min_karma = 3.5: expected a whole number"),
        ({"train": {"ratio": "x"}}, "ratio = 'x': expected a number"),
        ({"train": {"hosts": "a"}}, "hosts = 'a': expected a list of strings"),
        ({"train": {"hosts": ["a", 1]}}, r"hosts\[1\] = 1: expected a string"),
        ({"train": {"obey": 1}}, "obey = 1: expected true or false"),
        ({"train": {"before": 2018}}, "before = 2018: expected a string or 'none'"),
        ({"train": {"window": "long"}}, "window = 'long': expected a whole number or 'auto'"),
        ({"train": {"window": "none"}}, "window = 'none': expected a whole number or 'auto'"),
    ],
)
def test_a_wrong_key_or_value_is_named_with_its_place(table: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        read_sections(table, lambda: KNOWN)


def test_all_errors_of_a_file_are_raised_together_and_wrong_values_are_then_defaults() -> None:
    table = {"trian": {}, "train": {"ratio": "x", "obey": 1, "delay": 2.0}, "crawl": {"links": {"min_karm": 1}}}
    with pytest.raises(ConfigError) as raised:
        read_sections(table, lambda: KNOWN)
    assert str(raised.value).splitlines() == [
        "4 errors:",
        "unknown section [trian]; did you mean 'train'?",
        "unknown key 'min_karm' in [crawl.links]; did you mean 'min_karma'?",
        "[train] ratio = 'x': expected a number",
        "[train] obey = 1: expected true or false",
    ]
    errors: list[WebtextError] = []
    assert read_sections(table, lambda: KNOWN, errors=errors)["train"] == Example(delay=2.0)
    assert len(errors) == 4


def test_checks_of_the_class_and_of_several_values_together_are_all_told() -> None:
    table = {"train": {"low": 9, "high": 3, "name": ""}}
    with pytest.raises(ConfigError, match=r"2 errors:\nname is empty\nlow is above high"):
        read_sections(table, lambda: {"train": Related})


def test_of_a_hopeless_number_of_errors_twenty_are_told() -> None:
    with pytest.raises(ConfigError, match="^20 errors or more:\n(.*\n){19}.*$"):
        read_sections({"train": {f"key{i}": i for i in range(5000)}}, lambda: KNOWN)


HOSTILE = {
    "900 arrays": "[train]\nratio = " + 900 * "[" + 900 * "]",
    "200 arrays": "[train]\nratio = " + 200 * "[" + 200 * "]",
    "900 tables": "[train]\nratio = " + 900 * "{a=" + "1" + 900 * "}",
    "5,000 digits": "[train]\nmin_karma = " + 5000 * "9",
    "5,000 hexadecimal digits": "[train]\nmin_karma = 0x" + 5000 * "f",
    "5,000 dots": ".".join(5000 * ["a"]) + " = 1",
    "5,000 dots between quotes": "[train]\n" + ".".join(5000 * ['"a b"']) + " = 1",
    "5,000 dots in a table's name": "[" + " . ".join(5000 * ["'a=b'"]) + "]",
    "99 dots": "[train]\n" + ".".join(100 * ["a"]) + " = 1",
    "5,000 keys": "".join(f"a.b.c{i} = 1\n" for i in range(5000)),
    "2 MB": "[train]\n# " + 2_000_000 * "x",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_file_is_a_short_error_in_little_time_and_memory(name: str, tmp_path: Path) -> None:
    """As 128 KB files can't make a process larger than 50 MB, of which Python with this package takes 20."""
    path = tmp_path / "hostile.toml"
    path.write_text(HOSTILE[name])
    tracemalloc.start()
    began = time.process_time()
    with pytest.raises(ConfigError) as raised:
        read_sections(load_config(str(path)), lambda: KNOWN)
    assert time.process_time() - began < 5, "tracemalloc makes it some times slower"
    assert tracemalloc.get_traced_memory()[1] < 20e6
    tracemalloc.stop()
    assert len(str(raised.value)) < 500


@pytest.mark.parametrize("kind", ["device", "pipe"])
def test_a_device_or_a_pipe_in_place_of_a_config_file_is_an_error_at_once(kind: str, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ConfigError, match="is a device or a pipe"):
        load_config("/dev/zero" if kind == "device" else str(tmp_path / "pipe"))


def test_a_hostile_override_is_a_value_of_another_type() -> None:
    for value in (5000 * "9", "0x" + 5000 * "f", 900 * "[" + 900 * "]"):
        with pytest.raises(ConfigError, match="expected a whole number") as raised:
            read_sections(load_config(None, [f"train.min_karma={value}"]), lambda: KNOWN)
        assert len(str(raised.value)) < 500


def test_a_file_that_is_missing_a_folder_or_not_toml_is_a_short_error_but_a_byte_order_mark_is_not(
    tmp_path: Path,
) -> None:
    path = tmp_path / "a.toml"
    with pytest.raises(InputError, match="no config file"):
        load_config(str(path))
    with pytest.raises(InputError, match="cannot be read: Is a directory"):
        load_config(str(tmp_path))
    for content in (b"[a\n", b"\xff\xfe"):
        path.write_bytes(content)
        with pytest.raises(ConfigError, match="is not valid TOML"):
            load_config(str(path))
    path.write_bytes(b"\xef\xbb\xbf[a]\r\n")
    assert load_config(str(path)) == {"a": {}}


@pytest.mark.parametrize("override", ["min_karma=3", "crawl.links.min_karma", "=3", "crawl..=3", ".x=3"])
def test_an_override_of_another_form_is_refused(override: str) -> None:
    with pytest.raises(ConfigError, match="not of the form section.key=value"):
        load_config(None, [override])


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [("ratio", float("nan"), "a finite number$"), ("ratio", 10**400, "a number"), ("count", 2**63, "at most 64 bits")],
)
def test_infinite_and_huge_numbers_are_rejected(key: str, value: object, said: str) -> None:
    @dataclass(frozen=True, slots=True, kw_only=True)
    class Numbers:
        ratio: float = setting(0.5, "a ratio")
        count: int = setting(1, "a count")

    with pytest.raises(ConfigError, match=said):
        from_table(Numbers, {key: value}, "numbers")


def test_several_values_are_toml_where_they_are_and_words_where_not() -> None:
    assert several_values("1e-3, 4") == [1e-3, 4]
    assert several_values("none,1.0") == ["none", 1.0]
    assert several_values("[0.7,0.3],[1]") == [[0.7, 0.3], [1]]
    assert several_values("true") == [True]
    assert several_values("") == []


@dataclass(frozen=True, slots=True, kw_only=True)
class Inner:
    rate: float = setting(0.1, "rate")
    slow: bool = setting(False, "slow", in_recipe=False)

    def __post_init__(self) -> None:
        if self.rate < 0:
            raise ConfigError(f"rate is {self.rate}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Outer:
    steps: int = setting(3, "steps")
    optimizer: Inner = field(default_factory=Inner)


def test_settings_of_subsections_have_tables_of_their_own_and_flat_names() -> None:
    config = load_config(None, ["train.steps=5", "train.optimizer.rate=2"])
    values = section_of(config, "train", Outer, [])
    assert values == {"steps": 5, "rate": 2}
    settings = from_table(Outer, values, "train")
    assert settings == Outer(steps=5, optimizer=Inner(rate=2.0))
    assert all_settings(settings) == {"steps": 5, "rate": 2.0, "slow": False}
    assert recipe_settings(settings) == {"steps": 5, "rate": 2.0}
    assert changed(settings, slow=True, steps=6) == Outer(steps=6, optimizer=Inner(rate=2.0, slow=True))
    assert {name: option.subsection for name, option in options(Outer).items()} == {
        "steps": "",
        "rate": "optimizer",
        "slow": "optimizer",
    }


@pytest.mark.parametrize(
    ("override", "message"),
    [
        (
            "train.rate=2",
            r"'rate' is in \[train\]\nit belongs to \[train.optimizer\]; --set train.optimizer.rate=VALUE",
        ),
        (
            "train.optimizer.steps=2",
            r"'steps' is in \[train.optimizer\]\nit belongs to \[train\]; --set train.steps=VALUE",
        ),
        ("train.optimizer.rat=2", r"unknown key 'rat' in \[train.optimizer\]\ndid you mean 'rate'\?"),
        ("train.step=2", r"unknown key 'step' in \[train\]\ndid you mean 'steps'\?"),
        ("train.optimizer=2", r"unknown key 'optimizer' in \[train\]"),
        ("train.optimizer.rate=fast", r"\[train.optimizer\] rate = 'fast': expected a number"),
        ("train.optimizer.rate=-1", "rate is -1"),
    ],
)
def test_a_setting_in_the_wrong_table_is_an_error_that_names_the_right_one(override: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        read_sections(load_config(None, [override]), lambda: {"train": Outer})
