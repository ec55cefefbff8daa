"""A headless Chromium of this machine, for looking at pages from disk."""

import json
import shutil
from pathlib import Path

import pytest

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


def open_browser(profile: Path):
    """Start the browser; skip the test, with a reason, where there is none."""
    webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed (make test installs it)")
    from selenium.common.exceptions import SessionNotCreatedException

    binary = next(filter(None, map(shutil.which, BROWSERS)), None)
    chromedriver = shutil.which("chromedriver")
    if binary is None or chromedriver is None:
        pytest.skip("no Chromium with chromedriver on this machine (Debian: apt-get install chromium chromium-driver)")
    options = webdriver.ChromeOptions()
    options.binary_location = binary
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    for flag in (*FLAGS, f"--user-data-dir={profile}"):
        options.add_argument(flag)
    try:
        return webdriver.Chrome(options=options, service=webdriver.ChromeService(chromedriver))
    except SessionNotCreatedException as error:
        pytest.skip(f"Chromium cannot be started here: {error.msg.splitlines()[0]}")


def show(driver, page: Path, *, width=1280, height=900, dark=False, scripts=True):
    """Open a page from disk, as a window of this size with these preferences shows it."""
    size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
    still = {"name": "prefers-reduced-motion", "value": "reduce"}  # else a click may come while the page still scrolls
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme, still]})
    driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": not scripts})
    for log in ("browser", "performance"):
        driver.get_log(log)
    driver.get(page.as_uri())


def requested(driver) -> list[str]:
    """Return the addresses that were asked for since the page was opened."""
    events = [json.loads(entry["message"])["message"] for entry in driver.get_log("performance")]
    return [each["params"]["request"]["url"] for each in events if each["method"] == "Network.requestWillBeSent"]
