"""Which run is this? One experiment setting with one objective, named by the settings that change its numbers."""

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from typing import Any, ClassVar, Protocol

from common import objectives

SCHEMA = 1
"""Version of the store's layout; part of every identity."""


class Settings(Protocol):
    """A frozen dataclass of everything that changes a run's numbers, seeds excepted; its defaults are the paper's.

    Never change a default: old runs would pass for new ones. Add a key instead; a key at its default is left out of the
    identity, so old runs keep theirs.
    """

    __dataclass_fields__: ClassVar[dict[str, Any]]

    @property
    def objective(self) -> str:
        """Name of the objective."""
        ...

    @property
    def options(self) -> Mapping[str, float | bool]:
        """Options of the objective that were chosen."""
        ...

    @property
    def steps(self) -> int:
        """Updates in all."""
        ...


@dataclass(frozen=True)
class RunSpec:
    """A run's place in the world: track, experiment, and its settings."""

    track: str
    experiment: str
    settings: Settings

    def all_settings(self) -> dict[str, Any]:
        """Return every setting, with the objective's options filled up by its defaults."""
        values = {field.name: getattr(self.settings, field.name) for field in fields(self.settings)}
        values["options"] = objectives.get(self.settings.objective, self.settings.options).options
        return values

    def changed_settings(self) -> dict[str, Any]:
        """Return the settings that differ from their defaults; ``objective`` always, options where they differ."""
        changed = {
            field.name: _as_default(getattr(self.settings, field.name), _default(field))
            for field in fields(self.settings)
            if getattr(self.settings, field.name) != _default(field)
        }
        defaults = objectives.get(self.settings.objective).options
        options = {
            key: _as_default(value, defaults[key])
            for key, value in self.settings.options.items()
            if value != defaults[key]
        }
        changed.pop("options", None)
        return {"objective": self.settings.objective, **({"options": options} if options else {}), **changed}

    @property
    def key(self) -> str:
        """Ten hexadecimal digits that identify the run."""
        identity = {"schema": SCHEMA, "track": self.track, "experiment": self.experiment, **self.changed_settings()}
        return hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:10]

    @property
    def title(self) -> str:
        """Experiment and changed settings, for people."""
        changed = self.changed_settings()
        parts = [str(changed.pop("objective")), *(f"{k}={v}" for k, v in changed.pop("options", {}).items())]
        return " ".join([self.experiment, *parts, *(f"{key}={value}" for key, value in changed.items())])

    @property
    def path(self) -> Path:
        """Directory below the store: track/experiment/readable-name-key."""
        readable = re.sub(r"[^A-Za-z0-9.]+", "_", self.title.removeprefix(self.experiment)).strip("_")[:60]
        return Path(self.track, self.experiment, f"{readable}-{self.key}")


def _as_default(value: Any, default: Any) -> Any:
    """Write a whole number as a real one where the default is one: 2 and 2.0 are the same setting."""
    return float(value) if isinstance(default, float) and type(value) is int else value


def _default(field: Any) -> Any:
    if field.default is not MISSING:
        return field.default
    return field.default_factory() if field.default_factory is not MISSING else MISSING
