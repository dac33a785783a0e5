"""A headless Chromium for the tests of the playground, and waiting for conditions instead of for time."""

import shutil
import sys

SKIPPED = 77  # exit status: this machine cannot run the test

try:
    from selenium import webdriver
    from selenium.common.exceptions import TimeoutException
    from selenium.webdriver.chrome.service import Service
    from selenium.webdriver.support.ui import WebDriverWait
except ImportError:
    print("skipped: no Python package selenium")
    sys.exit(SKIPPED)


def _find(*names):
    for name in names:
        path = shutil.which(name)
        if path is not None:
            return path
    print(f"skipped: none of {', '.join(names)} is installed")
    sys.exit(SKIPPED)


def start():
    """A driver whose log has everything that the page and its policy complain of."""
    options = webdriver.ChromeOptions()
    options.binary_location = _find("chromium", "chromium-browser", "google-chrome")
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
                     "--hide-scrollbars", "--force-color-profile=srgb"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    return webdriver.Chrome(options=options, service=Service(_find("chromedriver")))


def wait(driver, condition, what, seconds=120):
    """Until condition() is true; returns what it gave. An AssertionError says `what` was waited for."""
    try:
        return WebDriverWait(driver, seconds, poll_frequency=0.05).until(lambda _: condition())
    except TimeoutException:
        raise AssertionError(f"waited {seconds} s for this: {what}") from None


def set_window(driver, width, height, mobile=False):
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", {
        "width": width, "height": height, "deviceScaleFactor": 1, "mobile": mobile})


def prefer_colours(driver, scheme):
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {
        "features": [{"name": "prefers-color-scheme", "value": scheme}]})


def take_complaints(driver):
    """Errors and warnings that the console has had since the last call: scripts, loads, the policy."""
    return [f"{entry['level']}: {entry['message']}" for entry in driver.get_log("browser")
            if entry["level"] in ("SEVERE", "WARNING")]
