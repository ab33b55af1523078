"""What commands say, by a table: words on their pages, values in their JSON."""

import json
import re

import pytest
from printed import in_one_line, widest
from rows import rows_of


@pytest.mark.parametrize("row", rows_of("said.txt", "pages"), ids=lambda row: row[0][:60])
def test_words_on_a_page(row, run):
    command, *words = row
    whole = run(command)
    assert len(widest(whole)) <= 80 or "--json" in command or command.startswith("list ")  # a file
    page = in_one_line(whole)
    for each in words:
        mark, text = re.fullmatch(r"([!^]?)(.*)", each).groups()
        assert (page.startswith(text) if mark == "^" else text in page) == (mark != "!"), each


def value_at(document, place):
    """What stands at a dotted place, nothing where there is no such place."""
    for name in place.split("."):
        is_list = isinstance(document, list)
        document = document[int(name)] if is_list else (document or {}).get(name)
    return document


def is_told(found, how, told):
    """Whether a value is equal to another, or near it or in its text."""
    if how == "~":
        return told in found if isinstance(found, str) else abs(found - float(told)) <= 0.006
    expected = json.loads(told) if re.match(r'[\["\d.-]|null', told) else told
    return found == (pytest.approx(expected) if isinstance(expected, float) else expected)


@pytest.mark.parametrize("row", rows_of("said.txt", "values"), ids=lambda row: row[0][:60])
def test_values_in_json(row, document):
    command, *told = row
    found = document(command)
    for each in told:
        place, is_not, how, value = re.fullmatch(r"(\S+) (!?)([=~]) (.*)", each).groups()
        assert is_told(value_at(found, place), how, value) != bool(is_not), each
