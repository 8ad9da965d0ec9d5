"""Rows made from documents."""

from __future__ import annotations

from common.daemon.prompt_rows import Document, one_row, rows

BEGIN = (1,)
QUERY = (90, 91)
NEAR, MIDDLE, FAR = (
    Document(title, (*BEGIN, *tokens), similarity)
    for title, tokens, similarity in (("near", (10, 11), 0.9), ("middle", (20, 21, 22), 0.5), ("far", (30,), 0.1))
)


class TestOneRow:
    def test_the_most_similar_comes_last(self) -> None:
        found = one_row(QUERY, [FAR, NEAR], [MIDDLE], BEGIN, room=100)
        assert found.prompt.documents == ((*BEGIN, 30, 20, 21, 22, 10, 11),)
        assert (found.titles, found.fetched_titles) == (("far", "near"), ("middle",))
        assert found.tokens == 9
        assert found.prompt.fetched == 0

    def test_the_least_similar_are_cut(self) -> None:
        found = one_row(QUERY, [FAR, NEAR], [MIDDLE], BEGIN, room=5)
        assert found.prompt.documents == ((*BEGIN, 20, 21, 10, 11),)
        assert (found.titles, found.fetched_titles) == (("near",), ("middle",))

    def test_without_a_begin_token(self) -> None:
        documents = [Document("a", (1, 5), 0.2), Document("b", (6,), 0.3)]
        assert one_row(QUERY, documents, [], (), room=9).prompt.documents == ((1, 5, 6),)

    def test_with_a_beginning_of_several_tokens(self) -> None:
        documents = [Document("a", (1, 2, 5), 0.2), Document("b", (1, 2, 6), 0.3), Document("c", (1, 7), 0.1)]
        assert one_row(QUERY, documents, [], (1, 2), room=9).prompt.documents == ((1, 2, 1, 7, 5, 6),)

    def test_nothing_fits_or_nothing_is_there(self) -> None:
        for own, room in (([NEAR], 1), ([], 100)):
            prompt = one_row(QUERY, own, [], BEGIN, room).prompt
            assert (prompt.documents, prompt.absent) == ((BEGIN,), True)


class TestRows:
    def test_fetched_ones_come_last_and_are_told_apart(self) -> None:
        found = rows(QUERY, [NEAR], [MIDDLE, FAR], BEGIN)
        assert found.prompt.documents == (NEAR.tokens, MIDDLE.tokens, FAR.tokens)
        assert found.prompt.fetched == 2
        assert (found.titles, found.fetched_titles) == (("near",), ("middle", "far"))

    def test_alone_they_are_all_there_is(self) -> None:
        """No row stands for the documents that the device has not: it has no weight."""
        found = rows(QUERY, [], [MIDDLE], BEGIN)
        assert (found.prompt.documents, found.prompt.fetched, found.prompt.absent) == ((MIDDLE.tokens,), 0, False)

    def test_without_any(self) -> None:
        prompt = rows(QUERY, [], [], BEGIN).prompt
        assert (prompt.documents, prompt.absent) == ((BEGIN,), True)
