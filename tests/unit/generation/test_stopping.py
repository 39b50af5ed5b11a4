"""Text comes out as soon as it may, and a stop string never does."""

import pytest

from nextword.core.errors import InvalidSetting
from nextword.core.types import Stop
from nextword.generation.stopping import Stopper


def feed(stop, *pieces):
    stopper = Stopper(stop)
    return [stopper.feed(piece) for piece in pieces], stopper.reason


def test_text_without_stop_strings_is_not_held():
    assert feed(Stop(), "one ", "two") == (["one ", "two"], None)


def test_stop_string_across_pieces_is_never_shown():
    assert feed(Stop(strings=("\n\n",)), "one\n", "\ntwo", "more") == (["one", "", ""], "stop")


def test_held_text_is_shown_if_it_was_no_stop_string():
    assert feed(Stop(strings=("\n\n",)), "one\n", "two") == (["one", "\ntwo"], None)
    assert feed(Stop(strings=("aab",)), "a", "a", "a", "b") == (["", "", "a", ""], "stop")


def test_first_complete_stop_string_counts():
    assert feed(Stop(strings=("abcd", "bc")), "xabcd") == (["xa"], "stop")
    assert feed(Stop(strings=("abcd", "bc")), *"xabcd") == (["x", "", "", "a", ""], "stop")
    assert feed(Stop(strings=("c", "abc")), "xabc") == (["x"], "stop")


def test_length_counts_tokens_and_shows_held_text():
    assert feed(Stop(max_tokens=2, strings=("xyz",)), "a", "bx", "c") == (["a", "bx", ""], "length")
    assert feed(Stop(max_tokens=0), "a") == ([""], "length")
    assert feed(Stop(max_tokens=1, strings=("a",)), "a") == ([""], "stop")


def test_end_of_document_stops():
    stopper = Stopper(Stop(strings=("ab",)))
    assert stopper.feed("xa") == "x"
    assert stopper.feed("", ended=True) == "a"
    assert stopper.reason == "end"
    onward = Stopper(Stop(at_end=False))
    assert onward.feed("", ended=True) == ""
    assert onward.reason is None


def test_close_returns_held_text():
    stopper = Stopper(Stop(strings=("ab",)))
    stopper.feed("xa")
    assert stopper.close() == "a"
    assert stopper.close() == ""
    assert stopper.reason == "end"


def test_invalid_settings_are_rejected():
    with pytest.raises(InvalidSetting, match="empty"):
        Stopper(Stop(strings=("",)))
    with pytest.raises(InvalidSetting, match="max_tokens"):
        Stopper(Stop(max_tokens=-1))
