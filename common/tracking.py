"""Weights & Biases as an optional side channel: the run store is the record, and nothing that W&B does reaches a run.

A failure of W&B (no network, a bad key, a broken installation) costs at most the timeout and one line of warning;
the run goes on without it.
"""

import configparser
import importlib
import logging
import netrc
import os
import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit

from omegaconf import OmegaConf

from common.errors import UserError

logger = logging.getLogger(__name__)

_MODES = {"online": "online", "run": "online", "offline": "offline", "dryrun": "offline", "disabled": "off"}
_PUBLIC_HOSTS = ("api.wandb.ai", "api.forge.coreweave.com")  # two names of one service, one login

_announced = False
_workspace_lock = threading.Lock()


def tracking_mode(environment: Mapping[str, str] = os.environ) -> str:
    """``"online"``, ``"offline"`` or ``"off"``, from the environment and stored logins; asks no network and no person.

    WANDB_MODE decides where it is set: online, offline, disabled (= off), or W&B's older names run (= online) and
    dryrun (= offline). Otherwise online if there are credentials: WANDB_API_KEY, WANDB_IDENTITY_TOKEN_FILE, a netrc
    entry for the W&B host, or a key in W&B's own settings of this user; off if there are none.

    Raises:
        UserError: WANDB_MODE is none of these.
    """
    mode = environment.get("WANDB_MODE", "")
    if mode:
        if mode not in _MODES:
            raise UserError(f"WANDB_MODE: found {mode!r}; allowed: online, offline, disabled")
        return _MODES[mode]
    return "online" if _has_credentials(environment) else "off"


class Tracker:
    """One W&B run for one run of ours; a context manager that does nothing when tracking is off.

    Metrics are plotted against ``step_key``, logged as a metric of its own: W&B drops what is logged at a step below
    its own counter, which a run resumed from a checkpoint would do.

    Args:
        project: W&B project.
        group: W&B group, the experiment.
        name: Display name.
        run_id: Identifies the run in its project: the same id continues the same W&B run.
        config: Settings to show: plain containers or an OmegaConf config, whose interpolations are resolved.
        directory: W&B writes below ``directory/wandb``.
        step_key: Name of the step metric.
        timeout: Seconds allowed to W&B for starting, and again for finishing.

    Raises:
        UserError: WANDB_MODE has an unknown value. Nothing else about W&B raises, here or later.
    """

    def __init__(
        self,
        *,
        project: str,
        group: str,
        name: str,
        run_id: str,
        config: Mapping[str, Any],
        directory: Path,
        step_key: str = "step",
        timeout: float = 20.0,
    ) -> None:
        self.mode = tracking_mode()
        self.project = project
        self.group = group
        self.name = name
        self.run_id = run_id
        self.config = config
        self.directory = directory
        self.step_key = step_key
        self.timeout = timeout
        self._run: Any = None
        self._healthy = False

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Send ``metrics`` of ``step``; steps need not grow, and non-finite values are sent as they are."""
        if not self._healthy:
            return
        try:
            self._run.log({**metrics, self.step_key: step})
        except Exception as error:  # whatever W&B raises, training does not depend on it
            self._give_up("log", error)

    def __enter__(self) -> Self:
        if self.mode == "off":
            announce_off()
        elif self.mode == "online" and not _has_credentials(os.environ):
            # W&B would ask for a key at the terminal.
            logger.warning("W&B off: WANDB_MODE=online but no key found; set WANDB_API_KEY or WANDB_MODE=offline")
        else:
            try:
                self._start()
            except Exception as error:  # W&B documents no closed set: import, pydantic, network and service errors
                self._give_up("init", error)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        run, self._run = self._run, None
        healthy, self._healthy = self._healthy, False
        if run is None:
            return
        try:
            run.finish(exit_code=0 if kind is None else 1)
        except Exception as failure:  # as in log
            if healthy:  # otherwise the one warning has been given
                self._give_up("finish", failure)

    def _start(self) -> None:
        # W&B reports its own failures to its server; where that server does not answer, this delays our exit by 12 s.
        os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
        wandb: Any = importlib.import_module("wandb")
        settings = self._settings(wandb.Settings)
        wandb.termsetup(wandb.Settings(silent=True), None)  # W&B prints while it loads its settings, before it has ours
        with _without_workspace_settings(wandb.Settings):
            wandb.setup(settings=wandb.Settings(**settings))
        if self.mode == "online" and (key := _api_key(os.environ)):
            settings["api_key"] = key  # given explicitly, it is never asked for
        self.directory.mkdir(parents=True, exist_ok=True)
        self._run = wandb.init(
            project=self.project,
            group=self.group,
            name=self.name,
            id=self.run_id,
            resume="allow",
            config=_plain(self.config),
            dir=str(self.directory),
            settings=wandb.Settings(**settings),
        )
        self._run.define_metric(self.step_key)
        self._run.define_metric("*", step_metric=self.step_key)
        self._healthy = True
        logger.info("W&B %s: %s", self.mode, self._run.url or self.directory / "wandb")

    def _settings(self, settings_type: Any) -> dict[str, Any]:
        """What we ask of W&B, less what the installed version does not know."""
        settings = {
            "mode": self.mode,
            "reinit": "create_new",  # never continue, finish or replace a run that someone else started
            "allow_val_change": True,  # a resumed run may differ in what does not change its numbers
            "use_dot_wandb": False,
            # Bounded.
            "init_timeout": self.timeout,
            "x_service_wait": self.timeout,
            "finish_timeout": self.timeout,
            "finish_timeout_raises": True,
            # Quiet.
            "silent": True,
            "console": "off",
            # Metrics and config only: no code, git state, command line, hardware or load.
            "disable_code": True,
            "save_code": False,
            "disable_git": True,
            "disable_job_creation": True,
            "label_disable": True,
            "sync_tensorboard": False,
            "x_disable_machine_info": True,
            "x_disable_meta": True,
            "x_disable_stats": True,
            "x_save_requirements": False,
            # A failed upload must not interrupt us.
            "stop_on_fatal_error": False,
        }
        return {key: value for key, value in settings.items() if key in settings_type.model_fields}

    def _give_up(self, stage: str, error: Exception) -> None:
        self._healthy = False
        kept = "" if self._run is None and stage == "init" else f"; what was logged is in {self.directory / 'wandb'}"
        logger.warning("W&B off for the rest of this run: %s failed: %s%s", stage, _one_line(error), kept)


def announce_off() -> None:
    """Say once a process that W&B is off, and how to turn it on."""
    global _announced
    if not _announced:
        _announced = True
        if os.environ.get("WANDB_MODE"):
            logger.info("W&B off: WANDB_MODE=%s", os.environ["WANDB_MODE"])
        else:
            logger.info("W&B off: no key found; set WANDB_API_KEY or WANDB_MODE=offline")


def _plain(value: Any) -> Any:
    """``value`` as dicts, lists and scalars; OmegaConf nodes at any depth are resolved."""
    if OmegaConf.is_config(value):
        return OmegaConf.to_container(value, resolve=True, enum_to_str=True)
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value


def _one_line(error: Exception) -> str:
    """The error's type and message on one line, without the input values that pydantic quotes or the key."""
    text = re.sub(r"\s*\[type=.*|\n\s*For further information.*", "", str(error))
    if key := _api_key(os.environ):
        text = text.replace(key, "***")
    return " ".join(f"{type(error).__name__}: {text}".split())[:300].rstrip(":")


@contextmanager
def _without_workspace_settings(settings_type: Any) -> Iterator[None]:
    """Let W&B load its settings without the file ``wandb/settings`` of the current directory.

    W&B reads that file, often years old, below everything that is passed explicitly, and an explicit None does not
    override it: an entity, a server or a key from it would go unnoticed. There is no option against it.
    """
    workspace = vars(settings_type).get("settings_workspace")
    if workspace is None:
        yield
        return
    with _workspace_lock:
        settings_type.settings_workspace = property(lambda _: os.devnull)
        try:
            yield
        finally:
            settings_type.settings_workspace = workspace


def _has_credentials(environment: Mapping[str, str]) -> bool:
    return bool(environment.get("WANDB_IDENTITY_TOKEN_FILE") or _api_key(environment))


def _api_key(environment: Mapping[str, str]) -> str | None:
    """The key that W&B itself would find, in its order of precedence."""
    if key := environment.get("WANDB_API_KEY"):
        return key
    if environment.get("WANDB_IDENTITY_TOKEN_FILE"):
        return None
    settings = _user_settings(environment)
    host = urlsplit(environment.get("WANDB_BASE_URL") or settings.get("base_url", "")).netloc
    hosts = _PUBLIC_HOSTS if host in ("", *_PUBLIC_HOSTS) else (host,)
    return _netrc_key(environment, hosts) or settings.get("api_key") or None


def _netrc_key(environment: Mapping[str, str], hosts: tuple[str, ...]) -> str | None:
    named = environment.get("NETRC")
    home = _home(environment)
    paths = [_expand(named)] if named else [home / ".netrc", home / "_netrc"]
    for path in paths:
        with suppress(OSError, UnicodeDecodeError, netrc.NetrcParseError):
            entries = netrc.netrc(path).hosts  # not authenticators(): a "default" entry is not a W&B login
            return next((entries[host][2] for host in hosts if host in entries and entries[host][2]), None)
    return None


def _user_settings(environment: Mapping[str, str]) -> dict[str, str]:
    """W&B's settings file of this user, where ``wandb login`` keeps the address of a private server."""
    folder = environment.get("WANDB_CONFIG_DIR")
    path = (_expand(folder) if folder else _home(environment) / ".config" / "wandb") / "settings"
    parser = configparser.ConfigParser()
    with suppress(OSError, UnicodeDecodeError, configparser.Error):
        parser.read(path)
        return dict(parser.items("default"))
    return {}


def _home(environment: Mapping[str, str]) -> Path:
    return Path(environment.get("HOME") or _expand("~"))


def _expand(path: str) -> Path:
    return Path(os.path.expanduser(path))  # noqa: PTH111  Path.expanduser raises where there is no such home
