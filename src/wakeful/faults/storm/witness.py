"""The app of a storm's workers: the app under test, and a note of whose runs each worker executes."""

import os
from dataclasses import replace
from pathlib import Path

from wakeful.app import App, MakeDriver
from wakeful.bootstrap.apps import load_app
from wakeful.domain.agents import Catalogue
from wakeful.domain.drivers import Compacting, Driver, Summary, Turn, View
from wakeful.faults.owners import OwnerNotes

__all__ = ["APP_VARIABLE", "OWNERS_VARIABLE", "WITNESS", "WitnessedApp", "app"]

WITNESS = "wakeful.faults.storm.witness:app"
APP_VARIABLE = "FAULTS_APP"
OWNERS_VARIABLE = "FAULTS_OWNERS"


class WitnessedDriver:
    """Notes on the way whose lease the run is executed under; decides nothing."""

    def __init__(self, driver: Driver, notes: OwnerNotes) -> None:
        self._driver, self._notes = driver, notes

    async def next_turn(self, view: View) -> Turn:
        if view.run.lease_owner is not None:
            self._notes.note(view.run.lease_owner)
        return await self._driver.next_turn(view)

    async def compact(self, view: View) -> Summary | None:
        return await self._driver.compact(view) if isinstance(self._driver, Compacting) else None


class WitnessedApp(App):
    """Another app, whose drivers are witnessed."""

    def __init__(self, watched: App, notes: OwnerNotes) -> None:
        super().__init__()
        self._watched, self._notes = watched, notes

    def catalogue(self, *, make_driver: MakeDriver) -> Catalogue:
        agents = self._watched.catalogue(make_driver=make_driver).agents
        return Catalogue(
            {name: replace(agent, driver=WitnessedDriver(agent.driver, self._notes)) for name, agent in agents.items()}
        )


def _app() -> App | None:
    """None in a process that is no worker of a storm."""
    if APP_VARIABLE not in os.environ:
        return None
    return WitnessedApp(load_app(os.environ[APP_VARIABLE]), OwnerNotes(Path(os.environ[OWNERS_VARIABLE])))


app = _app()
