"""A trip is booked whole or not at all: what was booked is cancelled, last booking first.

Three services, no transaction that spans them. Each step says how it is undone; when the run fails,
outlast runs what is needed, in exact reverse order, each once on the record, and goes on with it
after a crash.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from dataclasses import dataclass

import outlast
from outlast.errors import RunFailed


@dataclass
class Booking:
    number: str
    what: str


@outlast.step
async def book_hotel(city: str) -> Booking:
    print(f"   booked     a hotel in {city}")
    return Booking("H-1", f"the hotel in {city}")


@book_hotel.compensate
async def cancel_hotel(booking: Booking) -> None:
    print(f"   cancelled  {booking.what} ({booking.number})")


@outlast.step
async def book_flight(city: str) -> Booking:
    print(f"   booked     a flight to {city}")
    return Booking("F-2", f"the flight to {city}")


@book_flight.compensate
async def cancel_flight(booking: Booking) -> None:
    print(f"   cancelled  {booking.what} ({booking.number})")


class SoldOut(Exception):
    pass


@outlast.step(retry=outlast.Retry(attempts=3, delay=0.1, give_up_on=(SoldOut,)))
async def rent_car(city: str) -> Booking:
    if outlast.step_info().attempt == 1:
        print("   the car rental does not answer; trying again")
        raise ConnectionError("no answer")
    if city == "Reykjavík":
        print(f"   sold out   there is no car in {city}")
        raise SoldOut(f"no car left in {city}")
    print(f"   rented     a car in {city}")
    return Booking("C-3", f"the car in {city}")


@rent_car.compensate
async def return_car(booking: Booking) -> None:
    print(f"   returned   {booking.what} ({booking.number})")


@outlast.workflow
async def trip(city: str) -> list[str]:
    hotel = await book_hotel(city)
    flight = await book_flight(city)
    car = await rent_car(city)
    return [hotel.number, flight.number, car.number]


async def main(store: str) -> None:
    async with outlast.App(store, workflows=[trip]) as app:
        for city in ("Lisbon", "Reykjavík"):
            print(f"A trip to {city}:")
            run = await app.start(trip(city), id=f"trip-to-{city}")
            try:
                print(f"   all set    {', '.join(await run.result())}")
            except RunFailed as failure:
                print(f"   no trip    {failure.error}")
                print("What the history says of it:")
                for event in await app.get(run.id).history():
                    print(f"   {event.sequence:3}  {event.type:23} {event.step_name}")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(main(sys.argv[1] if sys.argv[1:] else f"sqlite:///{folder}/trips.db"))
