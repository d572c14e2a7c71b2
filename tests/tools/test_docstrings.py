"""Docstrings in the two styles that people write."""

from __future__ import annotations

import pytest

from app.tools.docstrings import read_docstring


@pytest.mark.parametrize(
    ("text", "summary"),
    [
        (None, ""),
        ("", ""),
        ("One line.", "One line."),
        ("Two\n    lines.\n\n    And more.", "Two lines."),
        ("Brief.\n    :param x: something", "Brief."),
        ("Args:\n    x: something", ""),
        ("Note: this is a sentence.", "Note: this is a sentence."),
    ],
)
def test_the_summary_is_the_first_paragraph(text: str | None, summary: str) -> None:
    assert read_docstring(text)[0] == summary


def test_google_sections_end_where_their_indentation_does() -> None:
    text = """Do it.

    Args:
        one (dict[str, tuple[int, ...]]): First: with a colon,
            over two lines.

        *two: Second.
        three:
            Third.

    three: no entry
    Raises:
        four: no entry
    """
    assert read_docstring(text)[1] == {
        "one": "First: with a colon, over two lines.",
        "two": "Second.",
        "three": "Third.",
    }


def test_sphinx_fields_may_name_a_type() -> None:
    text = """Do it.

    :param one: First,
        over two lines.
    :type one: int
    :param list[str] two: Second.
    :return: nothing
    """
    assert read_docstring(text)[1] == {"one": "First, over two lines.", "two": "Second."}
