"""Loading what a team wrote: `module:app` to an App, and an App to a catalogue."""

import importlib
import sys
from pathlib import Path

from wakeful.app import App
from wakeful.domain.agents import Catalogue
from wakeful.domain.errors import ConfigurationError
from wakeful.runtime.agent_driver import AgentDriver

__all__ = ["catalogue_of", "load_app"]


def load_app(target: str) -> App:
    """The App that `module:name` names (`module` alone means `module:app`).

    The working directory is importable, as with `python -m`. Raises ConfigurationError when there is no such
    module, name or App; what the module itself raises while it is imported is the cause of the error.
    """
    module_name, _, name = target.partition(":")
    name = name or "app"
    here = str(Path.cwd())
    if here not in sys.path and "" not in sys.path:
        sys.path.insert(0, here)
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is not None and module_name.startswith(error.name):
            raise ConfigurationError(f"--app {target}: there is no module {error.name} here ({here})") from error
        raise ConfigurationError(f"--app {target}: importing {module_name} failed: {error}") from error
    except Exception as error:
        message = f"--app {target}: importing {module_name} failed: {type(error).__name__}: {error}"
        raise ConfigurationError(message) from error
    found = getattr(module, name, None)
    if not isinstance(found, App):
        apps = [each for each, value in vars(module).items() if isinstance(value, App)]
        hint = f": did you mean {module_name}:{apps[0]}?" if apps else ""
        what = "has no" if found is None else "holds no App as"
        raise ConfigurationError(f"--app {target}: module {module_name} {what} {name}{hint}")
    return found


def catalogue_of(app: App) -> Catalogue:
    """Everything the app registered, its agents driven by models through the runtime."""
    return app.catalogue(make_driver=AgentDriver)
