"""The payload boundary, over everything JSON and text can be: what passes can be stored, what cannot is named."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wakeful.domain.errors import InvalidPayload
from wakeful.domain.payloads import MAX_DEPTH, check, repair, repair_text

pytestmark = pytest.mark.spec("LOG-1")

ANY_TEXT = st.text(st.characters(codec=None, categories=None))
"""Every code point, lone surrogates and NUL among them."""

ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | ANY_TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(ANY_TEXT, inner, max_size=4),
    max_leaves=20,
)


def storable(value: Any) -> bool:
    text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    return "\\u0000" not in text.replace("\\\\", "") and text.encode("utf-8", "strict") is not None


@given(ANY_JSON)
@settings(deadline=None, max_examples=300)
def test_what_is_repaired_can_be_stored_and_is_left_alone_the_second_time(value: Any) -> None:
    repaired = repair(value)
    assert storable(repaired.value)
    assert repair(repaired.value).replaced == 0
    check(repaired.value)


@given(ANY_JSON)
@settings(deadline=None, max_examples=300)
def test_what_passes_the_check_needs_no_repair(value: Any) -> None:
    try:
        check(value)
    except InvalidPayload:
        assert repair(value).replaced > 0
    else:
        assert repair(value).replaced == 0


@given(ANY_TEXT)
@settings(deadline=None)
def test_repaired_text_keeps_its_length(text: str) -> None:
    assert len(repair_text(text)) == len(text)


@pytest.mark.parametrize(
    ("value", "path"),
    [
        ({"a": ["x", "b\x00"]}, "$.a[1]"),
        ({"a": {"\ud800": 1}}, "$.a"),
        ([float("nan")], "$[0]"),
        ({"a": {1: 2}}, "$.a"),
        ({"a": object()}, "$.a"),
    ],
)
def test_a_refusal_names_the_place(value: Any, path: str) -> None:
    with pytest.raises(InvalidPayload) as refused:
        check(value)
    assert refused.value.path == path


@pytest.mark.parametrize("levels", [MAX_DEPTH + 1, 20_000])
def test_deep_nesting_is_refused_before_it_can_overflow_anything(levels: int) -> None:
    value: Any = None
    for _ in range(levels):
        value = [value]
    for boundary in (check, repair):
        with pytest.raises(InvalidPayload, match="nested deeper"):
            boundary(value)
