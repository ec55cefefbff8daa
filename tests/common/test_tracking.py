import importlib
import json
import logging
import math
import os
import pty
import shutil
import struct
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from omegaconf import OmegaConf

from common import tracking
from common.errors import UserError
from common.tracking import Tracker, tracking_mode

ROOT = Path(__file__).parents[2]
KEY = "0123456789" * 4
OFF = "INFO common.tracking: W&B off: no key found; set WANDB_API_KEY or WANDB_MODE=offline\n"

PREAMBLE = """
import logging, sys
from pathlib import Path
from common.tracking import Tracker
logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s: %(message)s")
def tracker(config=None, timeout=20.0):
    return Tracker(project="tpo", group="reversal", name="reversal tpo", run_id="reversal-tpo-1f3a", timeout=timeout,
                   config=config or {}, directory=Path("out"))
"""


@pytest.fixture(autouse=True)
def no_login(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith("WANDB_") or name == "NETRC":
            monkeypatch.delenv(name)
    monkeypatch.setenv("WANDB_ERROR_REPORTING", "false")  # set by the tracker; here so that it is put back
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setattr(tracking, "_announced", False)
    monkeypatch.chdir(tmp_path)


def script(body: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run ``body`` after PREAMBLE in a process of its own, in the current directory, without a terminal."""
    result = subprocess.run(
        [sys.executable, "-c", PREAMBLE + textwrap.dedent(body)],
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert result.returncode == 0, result.stderr
    return result


def records(directory: Path) -> list[Any]:
    """Read the records of the one offline run in ``directory``: 7 bytes of header, then a LevelDB log."""
    record_type: Any = importlib.import_module("wandb.proto.wandb_internal_pb2").Record
    (file,) = directory.glob("*.wandb")
    data = file.read_bytes()
    found, position, whole = [], 7, b""
    while position + 7 <= len(data):
        if 32768 - position % 32768 < 7:  # a header never straddles two blocks
            position += 32768 - position % 32768
            continue
        _, length, kind = struct.unpack_from("<IHB", data, position)
        whole += data[position + 7 : position + 7 + length]
        position += 7 + length
        if kind in (1, 4):  # complete, or the last part
            found.append(record_type.FromString(whole))
            whole = b""
    return found


def history(directory: Path) -> list[dict[str, Any]]:
    rows = [
        {item.key or ".".join(item.nested_key): json.loads(item.value_json) for item in record.history.item}
        for record in records(directory)
        if record.HasField("history")
    ]
    return [{key: value for key, value in row.items() if not key.startswith("_")} for row in rows]


def config(directory: Path) -> dict[str, Any]:
    (run,) = (record.run for record in records(directory) if record.HasField("run"))
    values = {item.key or ".".join(item.nested_key): json.loads(item.value_json) for item in run.config.update}
    return {key: value for key, value in values.items() if key != "_wandb"}


def offline_runs() -> list[Path]:
    return sorted(Path("out/wandb").glob("offline-run-*"))


# Mode.


@pytest.mark.parametrize(
    ("environment", "mode"),
    [
        ({}, "off"),
        ({"WANDB_MODE": ""}, "off"),
        ({"WANDB_MODE": "online"}, "online"),
        ({"WANDB_MODE": "run"}, "online"),
        ({"WANDB_MODE": "offline"}, "offline"),
        ({"WANDB_MODE": "dryrun"}, "offline"),
        ({"WANDB_MODE": "disabled"}, "off"),
        ({"WANDB_API_KEY": KEY}, "online"),
        ({"WANDB_API_KEY": ""}, "off"),
        ({"WANDB_API_KEY": KEY, "WANDB_MODE": "disabled"}, "off"),
        ({"WANDB_API_KEY": KEY, "WANDB_MODE": "offline"}, "offline"),
        ({"WANDB_IDENTITY_TOKEN_FILE": "token"}, "online"),
    ],
)
def test_mode(environment: dict[str, str], mode: str) -> None:
    assert tracking_mode({"HOME": "/nowhere", **environment}) == mode


@pytest.mark.parametrize("mode", ["onlin", "Online", "true", "shared", "off\n"])
def test_unknown_mode_is_refused(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match=r"^WANDB_MODE: found '.*'; allowed: online, offline, disabled$"):
        tracking_mode({"WANDB_MODE": mode})
    monkeypatch.setenv("WANDB_MODE", mode)
    with pytest.raises(UserError):
        make_tracker()


@pytest.mark.parametrize(
    ("text", "environment", "mode"),
    [
        (f"machine api.wandb.ai login user password {KEY}", {}, "online"),
        (f"machine api.forge.coreweave.com login user password {KEY}", {}, "online"),
        (f"machine api.wandb.ai login user password {KEY}", {"WANDB_BASE_URL": "https://wandb.example"}, "off"),
        (f"machine wandb.example login user password {KEY}", {"WANDB_BASE_URL": "https://wandb.example"}, "online"),
        ("machine example.org login user password secret", {}, "off"),
        ("default login anonymous password user@site", {}, "off"),
        ("machine api.wandb.ai login user", {}, "off"),
        ("machine machine machine", {}, "off"),
        ("\x00\xff", {}, "off"),
    ],
)
@pytest.mark.parametrize("named", [False, True])
def test_netrc(text: str, environment: dict[str, str], mode: str, named: bool, tmp_path: Path) -> None:
    path = tmp_path / ("logins" if named else ".netrc")
    path.write_text(text, encoding="latin-1")
    where = {"NETRC": str(path)} if named else {}
    assert tracking_mode({"HOME": str(tmp_path), **where, **environment}) == mode


@pytest.mark.parametrize("path", ["missing", ".", "~nobody-of-that-name/netrc"])
def test_unreadable_netrc(path: str) -> None:
    assert tracking_mode({"HOME": "/nowhere", "NETRC": path}) == "off"


def test_user_settings(tmp_path: Path) -> None:
    folder = tmp_path / ".config" / "wandb"
    folder.mkdir(parents=True)
    (folder / "settings").write_text(f"[default]\napi_key = {KEY}\n")
    assert tracking_mode({"HOME": str(tmp_path)}) == "online"
    assert tracking_mode({"HOME": "/nowhere", "WANDB_CONFIG_DIR": str(folder)}) == "online"
    (folder / "settings").write_text("[default]\nbase_url = https://wandb.example\n")
    (tmp_path / ".netrc").write_text(f"machine wandb.example login user password {KEY}")
    assert tracking_mode({"HOME": str(tmp_path)}) == "online"
    (folder / "settings").write_text("no settings file")
    assert tracking_mode({"HOME": str(tmp_path)}) == "off"


# Off.


def test_off_says_so_once_and_leaves_wandb_alone() -> None:
    result = script("""
        for _ in range(2):
            with tracker() as run:
                run.log(0, {"loss": 1.0})
        print("wandb" in sys.modules, Path("out").exists())
    """)
    assert result.stdout == "False False\n"
    assert result.stderr == OFF


def test_disabled_says_so(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    caplog.set_level(logging.INFO)
    monkeypatch.setenv("WANDB_MODE", "disabled")
    with make_tracker() as tracker:
        tracker.log(0, {"loss": 1.0})
    assert caplog.messages == ["W&B off: WANDB_MODE=disabled"]


@pytest.mark.parametrize("terminal", [False, True])
def test_online_without_a_key_never_asks(terminal: bool) -> None:
    body = PREAMBLE + "with tracker() as run:\n    run.log(0, {'loss': 1.0})\nprint('went on')"
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "WANDB_MODE": "online"}
    keyboard, screen = pty.openpty()
    try:
        ends: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), screen)
        if not terminal:
            ends = {"stdin": subprocess.DEVNULL, "stdout": screen, "stderr": screen}
        subprocess.run([sys.executable, "-c", body], env=environment, timeout=30, check=True, **ends)
        shown = os.read(keyboard, 4096).decode().splitlines()
    finally:
        os.close(keyboard)
        os.close(screen)
    assert shown == [
        "WARNING common.tracking: W&B off: WANDB_MODE=online but no key found; set WANDB_API_KEY or WANDB_MODE=offline",
        "went on",
    ]


# The real library.


def test_offline_run() -> None:
    result = script(
        """
        import random, signal
        import numpy as np
        from omegaconf import OmegaConf
        config = OmegaConf.create({
            "seeds": [0, 1], "task": {"length": 10, "steps": "${task.length}0"}, "rate": 1e-3, "note": None, "on": True,
        })
        before = random.getstate(), np.random.get_state()[1].tolist(), signal.getsignal(signal.SIGINT), Path.cwd()
        with tracker(config) as run:
            run.log(20, {"train/loss": 0.5, "grad": float("nan")})
            run.log(10, {"train/loss": 0.25, "grad": float("inf")})
            run.log(10, {"entropy": 2.0})
        with tracker(config) as run:  # resumed from a checkpoint
            run.log(15, {"train/loss": 0.125})
        assert before == (
            random.getstate(), np.random.get_state()[1].tolist(), signal.getsignal(signal.SIGINT), Path.cwd()
        )
        """,
        WANDB_MODE="offline",
    )
    assert result.stdout == ""
    assert result.stderr == "INFO common.tracking: W&B offline: out/wandb\n" * 2

    first, second = offline_runs()
    rows = history(first)
    assert [row["step"] for row in rows] == [20, 10, 10]
    assert [row.get("train/loss") for row in rows] == [0.5, 0.25, None]
    assert math.isnan(rows[0]["grad"])
    assert rows[1]["grad"] == math.inf
    assert rows[2] == {"step": 10, "entropy": 2.0}
    assert history(second) == [{"step": 15, "train/loss": 0.125}]

    for directory in (first, second):
        (run,) = (record.run for record in records(directory) if record.HasField("run"))
        assert (run.run_id, run.project, run.run_group) == ("reversal-tpo-1f3a", "tpo", "reversal")
        assert (run.display_name, run.entity) == ("reversal tpo", "")
        assert not run.HasField("git")
        assert config(directory) == {
            "seeds": [0, 1],
            "task": {"length": 10, "steps": "100"},
            "rate": 1e-3,
            "note": None,
            "on": True,
        }
        metrics = [record.metric for record in records(directory) if record.HasField("metric")]
        assert [(metric.name, metric.glob_name, metric.step_metric) for metric in metrics[:2]] == [
            ("step", "", ""),
            ("", "*", "step"),
        ]
        assert not any(record.HasField("stats") or record.HasField("output_raw") for record in records(directory))
        uploaded = [path for path in (directory / "files").rglob("*") if path.is_file()]
        assert {path.name for path in uploaded} <= {"config.yaml", "wandb-summary.json"}


def test_a_run_of_someone_else_is_left_alone() -> None:
    script(
        """
        import wandb
        Path("other").mkdir()
        other = wandb.init(project="other", id="other", dir="other", mode="offline")
        with tracker() as run:
            run.log(1, {"loss": 1.0})
        assert wandb.run is other
        other.log({"theirs": 2.0})
        other.finish()
        """,
        WANDB_SILENT="true",
        WANDB_MODE="offline",
    )
    (ours,) = offline_runs()
    (theirs,) = Path("other/wandb").glob("offline-run-*")
    assert history(ours) == [{"step": 1, "loss": 1.0}]
    assert history(theirs) == [{"theirs": 2.0}]


OLD = """[default]
mode = disabled
entity = old-team
project = old
base_url = http://127.0.0.1:1
resume_from = a?_step=1
"""


@pytest.mark.parametrize(
    ("folder", "stale"),
    [
        ("wandb", OLD),
        (".wandb", OLD),
        ("wandb", "[default]\nmode = sometimes\nno_longer_a_setting = 1\n"),
        ("wandb", "mode = offline\n[[["),
    ],
    ids=["valid", "hidden folder", "invalid values", "malformed"],
)
def test_stale_workspace_settings(folder: str, stale: str) -> None:
    Path(folder).mkdir()
    Path(folder, "settings").write_text(stale)
    result = script("with tracker() as run:\n    run.log(1, {'loss': 1.0})", WANDB_MODE="offline")
    assert result.stderr == "INFO common.tracking: W&B offline: out/wandb\n"
    (directory,) = offline_runs()
    (run,) = (record.run for record in records(directory) if record.HasField("run"))
    assert (run.project, run.entity) == ("tpo", "")
    assert history(directory) == [{"step": 1, "loss": 1.0}]
    assert Path(folder, "settings").read_text() == stale


def test_online_without_network_is_bounded(tmp_path: Path) -> None:
    """No server at the address in the user's settings, which holds against a stale file in the directory."""
    Path("wandb").mkdir()
    Path("wandb/settings").write_text(f"[default]\nbase_url = http://127.0.0.1:1\napi_key = {'f' * 40}\n")
    settings = tmp_path / "home" / ".config" / "wandb" / "settings"
    settings.parent.mkdir(parents=True)
    settings.write_text("[default]\nbase_url = http://127.0.0.1:9\n")
    begin = time.monotonic()
    result = script(
        """
        import time
        begin = time.monotonic()
        with tracker(timeout=1.0) as run:
            started = time.monotonic() - begin
            run.log(0, {"loss": 1.0})
        print(started < 8.0)
        """,
        WANDB_API_KEY=KEY,
    )
    assert time.monotonic() - begin < 15  # interpreter, start and exit
    assert result.stdout == "True\n"
    (line,) = result.stderr.splitlines()
    assert line.startswith("WARNING common.tracking: W&B off for the rest of this run: init failed: CommError:")
    assert "127.0.0.1:9" in line
    assert KEY not in line


def test_malformed_key() -> None:
    result = script("with tracker() as run:\n    run.log(1, {'loss': 1.0})", WANDB_API_KEY="short")
    (line,) = result.stderr.splitlines()
    assert line.startswith(
        "WARNING common.tracking: W&B off for the rest of this run: init failed: AuthenticationError"
    )
    assert "short" not in line


@pytest.mark.skipif(shutil.which("pgrep") is None, reason="needs pgrep to find the service")
def test_service_that_dies_leaves_the_run_alone() -> None:
    result = script(
        """
        import os, signal, subprocess, time
        with tracker() as run:
            run.log(0, {"loss": 1.0})
            service = subprocess.check_output(["pgrep", "-P", str(os.getpid()), "wandb-core"])
            os.kill(int(service), signal.SIGKILL)
            time.sleep(0.5)
            for step in range(3):
                run.log(step, {"loss": 1.0})
        print("went on")
        """,
        WANDB_MODE="offline",
    )
    assert result.stdout == "went on\n"
    assert result.stderr.count("WARNING") == 1


# A library that fails.


class FakeSettings(SimpleNamespace):
    model_fields = dict.fromkeys(
        ("mode", "silent", "console", "disable_git", "save_code", "init_timeout", "finish_timeout", "api_key")
    )
    settings_workspace = property(lambda _: "wandb/settings")


class FakeRun:
    url = "https://wandb.example/run"

    def __init__(self, fail: set[str]) -> None:
        self.fail = fail
        self.calls: list[tuple[str, Any]] = []

    def _call(self, name: str, argument: Any) -> None:
        self.calls.append((name, argument))
        if name in self.fail:
            raise RuntimeError(f"{name} broke\nwith key {KEY}")

    def define_metric(self, name: str, step_metric: str | None = None) -> None:
        self._call("define_metric", (name, step_metric))

    def log(self, metrics: dict[str, Any]) -> None:
        self._call("log", metrics)

    def finish(self, exit_code: int) -> None:
        self._call("finish", exit_code)


class FakeWandb(ModuleType):
    Settings = FakeSettings

    def __init__(self, *fail: str) -> None:
        super().__init__("wandb")
        self.run = FakeRun(set(fail))
        self.arguments: dict[str, Any] = {}
        self.workspaces: list[str] = []

    def termsetup(self, settings: Any, logger: None) -> None:
        assert settings.silent

    def setup(self, settings: FakeSettings) -> None:
        self.workspaces.append(settings.settings_workspace)

    def init(self, **arguments: Any) -> FakeRun:
        self.arguments = arguments
        self.workspaces.append(arguments["settings"].settings_workspace)
        self.run._call("init", None)
        return self.run


def make_tracker(settings: Any = None) -> Tracker:
    return Tracker(project="p", group="g", name="n", run_id="id", config=settings or {}, directory=Path("out"))


def fake(monkeypatch: pytest.MonkeyPatch, *fail: str) -> FakeWandb:
    wandb = FakeWandb(*fail)
    monkeypatch.setitem(sys.modules, "wandb", wandb)
    monkeypatch.setenv("WANDB_API_KEY", KEY)
    return wandb


def test_what_is_passed(monkeypatch: pytest.MonkeyPatch) -> None:
    wandb = fake(monkeypatch)
    with make_tracker({"path": ("a", 1), "node": OmegaConf.create({"x": 1, "y": "${x}"})}) as tracker:
        tracker.log(3, {"loss": 1.0, "step": -1.0})
    settings = vars(wandb.arguments.pop("settings"))
    assert settings["mode"] == "online"
    assert settings["silent"]
    assert settings["console"] == "off"
    assert settings["disable_git"]
    assert settings["save_code"] is False
    assert settings["init_timeout"] == settings["finish_timeout"] == 20.0
    assert settings["api_key"] == KEY
    assert wandb.arguments == {
        "project": "p",
        "group": "g",
        "name": "n",
        "id": "id",
        "resume": "allow",
        "dir": "out",
        "config": {"path": ["a", 1], "node": {"x": 1, "y": 1}},
    }
    assert wandb.workspaces == [os.devnull, "wandb/settings"]
    assert wandb.run.calls[1:] == [
        ("define_metric", ("step", None)),
        ("define_metric", ("*", "step")),
        ("log", {"loss": 1.0, "step": 3}),
        ("finish", 0),
    ]


@pytest.mark.parametrize(
    ("fail", "stage", "calls"),
    [
        (["init"], "init", ["init"]),
        (["define_metric"], "init", ["init", "define_metric", "finish"]),
        (["log"], "log", ["init", "define_metric", "define_metric", "log", "finish"]),
        (["finish"], "finish", ["init", "define_metric", "define_metric", "log", "log", "finish"]),
        (["log", "finish"], "log", ["init", "define_metric", "define_metric", "log", "finish"]),
    ],
)
def test_failures_cost_one_line(
    fail: list[str], stage: str, calls: list[str], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    wandb = fake(monkeypatch, *fail)
    with make_tracker() as tracker:
        tracker.log(0, {"loss": 1.0})
        tracker.log(1, {"loss": 0.5})
    tracker.log(2, {"loss": 0.25})
    assert [name for name, _ in wandb.run.calls] == calls
    (message,) = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    expected = f"W&B off for the rest of this run: {stage} failed: RuntimeError: {fail[0]} broke with key ***"
    assert message == expected + ("" if fail == ["init"] else "; what was logged is in out/wandb")


def test_broken_installation(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    fake(monkeypatch)
    monkeypatch.setitem(sys.modules, "wandb", None)
    with make_tracker() as tracker:
        tracker.log(0, {"loss": 1.0})
    (message,) = caplog.messages
    assert message.startswith("W&B off for the rest of this run: init failed: ModuleNotFoundError: ")


def test_unresolvable_config(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    fake(monkeypatch)
    with make_tracker(OmegaConf.create({"a": "${nowhere}"})) as tracker:
        tracker.log(0, {"loss": 1.0})
    (message,) = caplog.messages
    assert "InterpolationKeyError" in message
    assert "\n" not in message


def test_directory_that_cannot_be_made(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    fake(monkeypatch)
    Path("out").write_text("a file")
    with make_tracker() as tracker:
        tracker.log(0, {"loss": 1.0})
    (message,) = caplog.messages
    assert "FileExistsError" in message


@pytest.mark.parametrize("fail", [[], ["finish"]])
def test_errors_of_the_run_pass_through(fail: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    wandb = fake(monkeypatch, *fail)
    with pytest.raises(ValueError, match="non-finite loss"), make_tracker():
        raise ValueError("non-finite loss")
    assert wandb.run.calls[-1] == ("finish", 1)


def test_pydantic_messages_lose_their_inputs(monkeypatch: pytest.MonkeyPatch) -> None:
    settings_type: Any = importlib.import_module("wandb").Settings
    monkeypatch.setenv("WANDB_API_KEY", KEY)
    with pytest.raises(ValueError, match="validation error") as caught:
        settings_type(api_key=KEY, mode="sometimes")
    line = tracking._one_line(caught.value)
    assert line.startswith("ValidationError: 1 validation error for Settings mode Input should be 'online'")
    assert "input_value" not in line
    assert "errors.pydantic.dev" not in line
