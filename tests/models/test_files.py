"""Files as users have them: pipes, circles of links, long names, masks, headers, deep nesting."""

import io
import os
import stat

import pytest
from printed import refused
from rows import each_row, one_case

from specmodel import InputError, load_architecture, load_hardware
from specmodel.core.base.files import check_writable, write_text
from specmodel.core.base.ranges import parse_numbers, parse_values
from specmodel.core.base.records import read_mapping, read_text
from specmodel.core.base.tables import parse_csv, read_table

LONG = "x" * 300


@pytest.fixture
def circle(tmp_path):
    """Two links that lead to each other."""
    first, second = tmp_path / "one.toml", tmp_path / "two.toml"
    first.symlink_to(second)
    second.symlink_to(first)
    return first


def read(path, argument="file"):
    return read_text(path, argument, "TOML")


@one_case(
    "reader suffix",
    *((read_mapping, ".json"), (lambda path, name: read_table(path, [], name), ".parquet")),
    *((load_hardware, ".toml"), (load_architecture, ".json")),
)
def test_what_is_no_ordinary_file_is_refused_at_once(tmp_path, reader, suffix):
    own = tmp_path / suffix[1:]
    pipe, folder = own / f"pipe{suffix}", own / f"folder{suffix}"
    (folder / "config.json").mkdir(parents=True, exist_ok=True)
    if not pipe.exists():
        os.mkfifo(pipe)
    absent, too_long = own / f"absent{suffix}", own / f"{LONG}{suffix}"
    ours = (pipe, "it is no ordinary file"), (folder, "it is a directory")
    theirs = (absent, "No such file or directory"), (too_long, "File name too long")
    for path, reason in ours + theirs:
        refused(rf"^file: got .*{reason}", reader, path, "file")


def test_links_that_lead_in_a_circle_are_refused(circle):
    for use in (read, check_writable, lambda path: write_text(path, "text")):
        refused("Too many levels of symbolic links", use, circle)
    assert circle.is_symlink()


@pytest.mark.parametrize(("mask", "mode"), [(0o022, 0o644), (0o077, 0o600)])
def test_a_new_file_has_the_mode_that_the_mask_leaves(tmp_path, mask, mode):
    before = os.umask(mask)
    try:
        write_text(tmp_path / "new.txt", "text")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "new.txt").stat().st_mode) == mode


def test_a_file_that_is_replaced_keeps_its_mode_and_links_are_followed(tmp_path):
    old, link = tmp_path / "old.txt", tmp_path / "link.txt"
    old.write_text("old")
    old.chmod(0o640)
    link.symlink_to(old)
    write_text(link, "new")
    assert link.is_symlink()
    assert (old.read_text(), stat.S_IMODE(old.stat().st_mode)) == ("new", 0o640)
    assert {*tmp_path.iterdir()} == {old, link}


def test_a_name_as_long_as_a_name_may_be_can_be_written(tmp_path):
    path = tmp_path / ("x" * 255)
    write_text(path, "text")
    assert path.read_text() == "text"
    for use in (check_writable, lambda path, argument: write_text(path, "text", argument)):
        refused(r"^table: got .*File name too long", use, tmp_path / LONG, "table")
    message = r"^output: got '.udcff'; expected text that can be written in UTF-8"
    refused(message, write_text, path, "name = \udcff")


def test_nothing_is_left_of_a_file_that_cannot_be_written(tmp_path, monkeypatch):
    def full(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("pathlib.Path.replace", full)
    with pytest.raises(KeyboardInterrupt):
        write_text(tmp_path / "new.txt", "text")
    assert list(tmp_path.iterdir()) == []


# Tables


def table(text):
    return parse_csv(io.BytesIO(text.encode()), ["version"], "a.csv", "table")


def test_names_of_columns_are_told_before_the_rows_are_read():
    many = ",".join(["a"] * 40_000)
    refused(r"^table: got 'a.csv'; .*at most 1000 columns", table, f"{many}\n")
    refused("before any row", table, "a" * 2_000_000)
    refused(r"^table: got 'a'; expected each column once", table, "a,b,a\n1,2,3\n")
    refused("No columns to parse", table, "# nothing\n\n")


def test_comments_and_blanks_around_the_names_change_nothing():
    plain = table("a,version,c\n1,1.10,x y\n")
    assert plain.to_dict("list") == {"a": [1], "version": ["1.10"], "c": ["x y"]}
    for text in ("\ufeffa,version,c\n1,1.10,x y\n", "# c,d\n\na,version,c\n1,1.10,x y\n\n"):
        assert table(text).equals(plain)
    assert list(table('a,"b, c",\n1,2,3\n')) == ["a", "b, c", "Unnamed: 2"]


# What a message shows


def test_a_message_is_one_short_line_without_control_characters():
    for value in ("\x1b[31m" * 50, "a\nb\tc", "\udcff", [[0] * 100] * 100, "x" * 10_000):
        text = str(InputError("file \x1b[0m\udcff", value, "\x07 better"))
        assert text.isprintable()
        assert len(text) < 150
    assert "'" + "x" * 78 + "'" in str(InputError("a", "x" * 78, "b"))
    assert "..." in str(InputError("a", "x" * 79, "b"))


def test_values_too_large_to_show_are_named():
    deep: list[object] = []
    for _ in range(100_000):
        deep = [deep]
    assert "a list too large to show" in str(InputError("a", deep, "b"))
    assert "a int too large to show" in str(InputError("a", 10**5000, "b"))


@each_row("suffix", [".toml", ".json"])
@each_row("depth", [100, 100_000])
def test_brackets_without_end_are_refused(tmp_path, suffix, depth):
    path, text = tmp_path / f"deep{suffix}", "[" * depth + "]" * depth
    path.write_text(f"a = {text}" if suffix == ".toml" else f'{{"model_type": {text}}}')
    refused("target", load_architecture, path)


@each_row("number", ["-" + "9" * 401, "9" * 5000])
def test_numbers_of_many_digits_are_refused(tmp_path, number):
    path = tmp_path / "gpu.toml"
    path.write_text(f"schema_version = 1\nnum_multiprocessors = {number}\n")
    refused("hardware", load_hardware, path)
    for parse in (parse_values, parse_numbers):
        for text in (number, f"1:{number}:x2"):
            refused(r"^batch_size: got .*; expected", parse, "batch_size", text)
