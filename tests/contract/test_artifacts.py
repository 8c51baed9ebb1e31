"""Artifacts: bytes outside the log, found by reference, verified, and never another session's."""

import hashlib

import pytest
from support.contract import World

from wakeful.domain.errors import NotFound, SessionGone
from wakeful.domain.ids import new_id
from wakeful.domain.scopes import SessionRef

pytestmark = [pytest.mark.anyio, pytest.mark.spec("ORM-4")]

DATA = "grüße ".encode() * 1000


async def test_stored_bytes_are_fetched_by_their_reference(world: World) -> None:
    session = (await world.session()).ref
    ref = await world.store.artifacts.store(session, DATA, media_type="text/plain", origin="PAYLOAD")
    assert (ref.sha256, ref.size_bytes, ref.media_type) == (hashlib.sha256(DATA).hexdigest(), len(DATA), "text/plain")
    assert await world.store.artifacts.fetch(session, ref) == DATA


async def test_no_bytes_at_all_are_an_artifact_as_well(world: World) -> None:
    session = (await world.session()).ref
    ref = await world.store.artifacts.store(session, b"", media_type="application/octet-stream", origin="PAYLOAD")
    assert ref.size_bytes == 0
    assert await world.store.artifacts.fetch(session, ref) == b""


async def test_the_preview_is_the_beginning_of_text_and_nothing_of_anything_else(world: World) -> None:
    session = (await world.session()).ref
    store = world.store.artifacts.store
    text = await store(session, DATA, media_type="text/plain; charset=utf-8", origin="PAYLOAD")
    assert text.preview
    assert DATA.decode().startswith(text.preview)
    assert len(text.preview) < 1000
    image = await store(session, b"\x89PNG\x00", media_type="image/png", origin="PAYLOAD")
    assert image.preview == ""


async def test_equal_bytes_are_different_artifacts(world: World) -> None:
    session = (await world.session()).ref
    first, second = [
        await world.store.artifacts.store(session, DATA, media_type="text/plain", origin="PAYLOAD") for _ in range(2)
    ]
    assert first.artifact_id != second.artifact_id


async def test_an_artifact_of_a_session_that_is_not_there_is_refused(world: World) -> None:
    session = await world.session()
    for ref in (SessionRef(world.scope.tenant_id, new_id()), SessionRef(new_id(), session.session_id)):
        with pytest.raises(SessionGone):
            await world.store.artifacts.store(ref, DATA, media_type="text/plain", origin="PAYLOAD")


async def test_an_artifact_of_another_session_or_tenant_is_unknown(world: World) -> None:
    session, other = (await world.session()).ref, (await world.session()).ref
    ref = await world.store.artifacts.store(session, DATA, media_type="text/plain", origin="PAYLOAD")
    for place in (other, SessionRef(new_id(), session.session_id)):
        with pytest.raises(NotFound):
            await world.store.artifacts.fetch(place, ref)
    with pytest.raises(NotFound):
        await world.store.artifacts.fetch(session, ref.model_copy(update={"artifact_id": new_id()}))


async def test_a_reference_with_another_hash_fetches_nothing(world: World) -> None:
    session = (await world.session()).ref
    ref = await world.store.artifacts.store(session, DATA, media_type="text/plain", origin="PAYLOAD")
    with pytest.raises(NotFound):
        await world.store.artifacts.fetch(session, ref.model_copy(update={"sha256": "0" * 64}))
