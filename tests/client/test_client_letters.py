"""Of very many dead letters no more is read than a page needs."""

from __future__ import annotations

from collections import Counter

import pytest

from millrace.client import dead_letters
from tests.client.letters import Topic, parked, redriven

FIRST = 100


@pytest.fixture
def topic(monkeypatch: pytest.MonkeyPatch) -> Topic:
    """Letters 100 to 199, of which 110 and 195 were sent again: 195 came from the second try of 110, and is followed by a third."""
    monkeypatch.setattr(dead_letters, "STEP", 8)
    records = [parked(n).model_dump_json().encode() for n in range(100)]
    records[90] = redriven(110, to=95, repeats=2).model_dump_json().encode()
    records[97] = redriven(195, to=300, repeats=3).model_dump_json().encode()
    return Topic(records, FIRST)


def test_all_pages_have_each_letter_once_the_newest_first(topic: Topic) -> None:
    seen, below, pages = [], None, 0
    while True:
        page = topic.page(below, 7)
        seen += [each.number for each in page.letters]
        assert len(page.letters) <= 7 and page.total >= 98
        pages += 1
        if not page.more:
            break
        below = page.letters[-1].number
    assert (seen, pages, page.total) == ([n for n in range(199, 99, -1) if n not in (190, 197)], 14, 98)


def test_the_first_page_reads_what_it_shows_and_little_more(topic: Topic) -> None:
    page = topic.page(None, 10)
    assert min(topic.were_read) == 200 - 2 * 8 and len(page.letters) == 10 and page.more
    assert max(Counter(topic.were_read).values()) == 1
    [sent] = [each for each in page.letters if each.redriven is not None]
    assert (sent.number, sent.repeats) == (195, 2) and sent.redriven is not None and sent.redriven.repeats == 3


def test_of_what_was_parked_later_only_what_became_of_the_page_is_looked_at(topic: Topic, monkeypatch: pytest.MonkeyPatch) -> None:
    looked = []
    monkeypatch.setattr(dead_letters, "_body", lambda kind, value, body=dead_letters._body: looked.append(value) or body(kind, value))
    page = topic.page(112, 3)
    assert [(each.number, each.redriven is not None) for each in page.letters] == [(111, False), (110, True), (109, False)]
    assert min(topic.were_read) == 104 and len(looked) == 8 + 2, "of 88 records behind the page two tell of others"


def test_one_letter_is_found_with_what_became_of_it(topic: Topic) -> None:
    found = topic.one(110)
    assert found is not None and found.redriven is not None and min(topic.were_read) == 102
    again = topic.one(195)
    assert again is not None and again.repeats == 2
    assert [topic.one(n) for n in (99, 190, 200, 1 << 62)] == [None] * 4


def test_pages_end_where_nothing_is_kept_any_more(topic: Topic) -> None:
    for page in (topic.page(100, 5), topic.page(3, 5), Topic([], 7).page(None, 5)):
        assert page.letters == [] and not page.more
    assert topic.page(1 << 62, 1).letters[0].number == 199
    assert [each.number for each in topic.read(first=198)] == [198, 199] and topic.read(first=200) == []
