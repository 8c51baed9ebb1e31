"""Old logs stay readable: a recorded payload of every version of every type, and what generated ones become.

A new version of a payload needs an upcaster from the one before, and a file `tests/fixtures/events/<type>.v<n>.json`
with a payload of the new version and what that is today. Files of older versions are never changed but for `today`.
"""

import json
from copy import deepcopy
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wakeful.domain.errors import UnknownEventVersion, UnreadableEvent
from wakeful.domain.events import CURRENT_VERSIONS, decode, payload_type
from wakeful.domain.events.registry import UnknownPayload
from wakeful.domain.events.turns import ModelResponseCompleted
from wakeful.domain.events.upcasters import UPCASTERS, chain

pytestmark = [pytest.mark.gate("upcaster_totality"), pytest.mark.spec("UPC-4")]

FOLDER = Path(__file__).parents[1] / "fixtures" / "events"
FIXTURES = [json.loads(file.read_text(encoding="utf-8")) for file in sorted(FOLDER.glob("*.json"))]
VERSIONS = {(name, version) for name, current in CURRENT_VERSIONS.items() for version in range(1, current + 1)}

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
RESPONSES_1 = st.fixed_dictionaries(
    {"step": st.integers(1), "provider": st.text(), "model": st.text(), "finish_reason": st.text()},
    optional={
        "usage": st.fixed_dictionaries({"input_tokens": st.integers(0), "output_tokens": st.integers(0)}),
        "repaired": st.integers(0),
    },
)


def test_there_is_a_fixture_of_every_version_and_of_no_other() -> None:
    assert {(fixture["type"], fixture["version"]) for fixture in FIXTURES} == VERSIONS
    assert {file.name for file in FOLDER.glob("*.json")} == {f"{name}.v{version}.json" for name, version in VERSIONS}


@pytest.mark.parametrize("fixture", FIXTURES, ids=lambda fixture: f"{fixture['type']}.v{fixture['version']}")
def test_a_recorded_payload_decodes_to_todays_shape(fixture: dict[str, Any]) -> None:
    payload = deepcopy(fixture["payload"])
    decoded = decode(fixture["type"], fixture["version"], payload)
    assert type(decoded) is payload_type(fixture["type"])
    assert decoded.model_dump(mode="json") == fixture["today"]
    assert payload == fixture["payload"], "decoding leaves the stored payload as it is"


@pytest.mark.parametrize("fixture", FIXTURES, ids=lambda fixture: f"{fixture['type']}.v{fixture['version']}")
def test_a_recorded_payload_of_todays_version_is_written_as_it_was_recorded(fixture: dict[str, Any]) -> None:
    if fixture["version"] == CURRENT_VERSIONS[fixture["type"]]:
        assert fixture["today"] == fixture["payload"]
    else:
        assert fixture["today"] != fixture["payload"]


@pytest.mark.spec("UPC-2")
@given(RESPONSES_1)
def test_any_response_of_version_1_has_an_unrecorded_count_and_is_otherwise_the_same(payload: dict[str, Any]) -> None:
    decoded = decode("model.response.completed", 1, payload)
    assert isinstance(decoded, ModelResponseCompleted)
    assert decoded.tool_call_count_before_turn is None
    assert decoded == decode("model.response.completed", 2, {**payload, "tool_call_count_before_turn": None})


@pytest.mark.spec("UPC-1")
@pytest.mark.parametrize("step", sorted(UPCASTERS), ids=str)
@given(payload=st.dictionaries(st.text(), JSON, max_size=6))
def test_an_upcaster_is_pure_and_takes_any_object(step: tuple[str, int], payload: dict[str, Any]) -> None:
    before = deepcopy(payload)
    first, second = UPCASTERS[step](payload), UPCASTERS[step](deepcopy(payload))
    assert payload == before
    assert first == second
    assert first is not payload


@pytest.mark.spec("UPC-1")
def test_a_version_that_nothing_leads_on_from_is_refused_where_the_code_is_loaded() -> None:
    with pytest.raises(LookupError, match=r"no upcaster of run\.queued from version 1 to 2"):
        chain("run.queued", 2)
    assert len(chain("model.response.completed", 2)) == 1


@pytest.mark.spec("UPC-3")
@pytest.mark.parametrize(("name", "current"), sorted(CURRENT_VERSIONS.items()))
def test_a_version_from_the_future_is_an_error_that_names_it(name: str, current: int) -> None:
    event = uuid4()
    with pytest.raises(UnknownEventVersion) as raised:
        decode(name, current + 1, {}, event=event)
    assert str(event) in str(raised.value)
    assert f"{name} has payload version {current + 1}, this code knows up to {current}" in str(raised.value)


def test_a_payload_altered_by_hand_is_an_error_that_names_the_place_and_not_what_stands_there() -> None:
    with pytest.raises(UnreadableEvent) as raised:
        decode("user.message.received", 1, {"role": "secret words", "content": "hello"}, event="e1")
    assert "event e1: no user.message.received of payload version 1 (at role)" in str(raised.value)
    assert "secret" not in str(raised.value)


def test_a_type_of_somebody_elses_is_kept_as_it_is() -> None:
    decoded = decode("weather.changed", 7, {"sun": True})
    assert decoded == UnknownPayload(stored_type="weather.changed", data={"sun": True})
