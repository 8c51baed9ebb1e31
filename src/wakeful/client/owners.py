"""Who owns the data: tenants and principals as UUIDs, or as any text of the caller's own."""

from typing import Literal
from uuid import UUID

from wakeful.domain.errors import InvalidInput
from wakeful.domain.ids import derived_id
from wakeful.domain.payloads import check
from wakeful.domain.scopes import Scope

__all__ = ["Owner", "owner_id", "scope_of", "uuid_of"]

Owner = UUID | str
"""A UUID (or its text) is taken as it is; any other text stands for one UUID, the same in every process."""


def owner_id(kind: Literal["tenant", "principal"], owner: Owner | None) -> UUID:
    """The UUID that is stored. Text that is no UUID is mapped by UUIDv5 over (kind, text); the text itself is not
    stored anywhere. Raises InvalidInput for None and for empty text."""
    if isinstance(owner, UUID):
        return owner
    if owner is None or not owner.strip():
        raise InvalidInput(f"no {kind}: give {kind}=… here, or once to connect()")
    check(owner)
    try:
        return UUID(owner)
    except ValueError:
        return derived_id(kind, owner)


def scope_of(tenant: Owner | None, principal: Owner | None) -> Scope:
    return Scope(owner_id("tenant", tenant), owner_id("principal", principal))


def uuid_of(what: str, value: UUID | str) -> UUID:
    """The id itself. Raises InvalidInput for text that is no UUID."""
    if isinstance(value, UUID):
        return value
    try:
        return UUID(value)
    except ValueError:
        raise InvalidInput(f"{value!r} is no {what} id: ids are UUIDs") from None
