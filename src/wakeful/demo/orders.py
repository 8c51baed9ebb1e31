"""The order book of the support desk. Looking something up has no effect; what is done to it goes into the ledger."""

from dataclasses import dataclass

__all__ = ["ORDERS", "Order", "find"]


@dataclass(frozen=True, slots=True)
class Order:
    number: str
    customer: str
    article: str
    cents: int
    state: str


ORDERS = {
    order.number: order
    for order in (
        Order("1001", "Ada", "desk lamp", 4900, "delivered"),
        Order("1002", "Ada", "oak shelf", 21900, "delivered"),
        Order("1003", "Grace", "office chair", 32900, "on its way"),
        Order("1004", "Grace", "foot rest", 3900, "on its way"),
        Order("1005", "Edsger", "fountain pen", 12900, "delivered"),
        Order("1006", "Edsger", "ink, black", 900, "cancelled"),
        Order("1007", "Barbara", "standing desk", 64900, "delivered"),
        Order("1008", "Tony", "sorting trays", 2900, "late"),
        Order("1009", "Leslie", "wall clock", 5900, "late"),
        Order("1010", "Radia", "cable bridge", 1900, "late"),
    )
}


def find(number: str) -> Order | None:
    return ORDERS.get(number)
