"""The page as a reader meets it: in a browser, by mouse and by keyboard, on a phone, in the dark, on paper."""

import base64

import pytest
from browser import requested, show

VISIBLE = "return [...document.querySelectorAll('table.claims > tbody')].filter(each => each.checkVisibility())"
DARK = {"name": "prefers-color-scheme", "value": "dark"}
CONTRAST = """
const channel = (value) => (value /= 255) <= 0.03928 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4;
const luminance = ([r, g, b]) => 0.2126 * channel(r) + 0.7152 * channel(g) + 0.0722 * channel(b);
const numbers = (colour) => colour.match(/[\\d.]+/g).map(Number);
function behind(element) {
  for (let each = element; each; each = each.parentElement) {
    const colour = numbers(getComputedStyle(each).backgroundColor);
    if (colour.length === 3 || colour[3] === 1) return colour;
  }
  return [255, 255, 255];
}
for (const each of document.querySelectorAll('details')) each.open = true;
const found = [];
const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
while (texts.nextNode()) {
  const element = texts.currentNode.parentElement;
  if (!texts.currentNode.data.trim() || !element.checkVisibility() || element.closest('script, style')) continue;
  const [a, b] = [numbers(getComputedStyle(element).color), behind(element)].map(luminance);
  found.push([(Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05), texts.currentNode.data.trim()]);
}
return found;
"""


def visible(driver, attribute="verdict"):
    script = f"{VISIBLE}.map(each => each.dataset['{attribute}'])"
    return driver.execute_script(script)


def press(driver, *keys):
    from selenium.webdriver.common.action_chains import ActionChains

    ActionChains(driver).send_keys(*keys).perform()


def header(driver, key):
    return driver.find_element("css selector", f"th[data-sort={key}]")


def test_loads_from_disk_without_errors_and_asks_for_nothing_else(browser, page):
    show(browser, page)
    assert browser.get_log("browser") == []
    addresses = requested(browser)
    assert page.as_uri() in addresses
    assert [each for each in addresses if each != page.as_uri() and not each.startswith("data:")] == []
    assert "Target Policy Optimization" in browser.title


def test_every_picture_is_shown_and_described(browser, page):
    show(browser, page)
    pictures = browser.execute_script(
        "return [...document.images].map(each => [each.complete, each.naturalWidth, each.clientWidth, each.alt])"
    )
    assert len(pictures) >= 3
    for complete, natural, shown, alt in pictures:
        assert complete
        assert natural > 0
        assert shown > 200
        assert len(alt) > 40


def test_columns_are_sorted_and_put_back(browser, page):
    show(browser, page)
    in_order = visible(browser, "claim")
    button = header(browser, "seeds").find_element("tag name", "button")
    for expected in ("ascending", "descending"):
        button.click()
        assert header(browser, "seeds").get_attribute("aria-sort") == expected
        seeds = [int(each) for each in visible(browser, "seeds")]
        assert seeds == sorted(seeds, reverse=expected == "descending")
        assert len(set(seeds)) > 1
    header(browser, "rank").find_element("tag name", "button").click()
    assert header(browser, "seeds").get_attribute("aria-sort") == "none"
    ranks = [int(each) for each in visible(browser, "rank")]
    assert ranks == sorted(ranks)
    for _ in range(2):
        header(browser, "rank").find_element("tag name", "button").click()
    assert visible(browser, "claim") == in_order


@pytest.mark.parametrize("width", [1280, 375])
def test_claims_are_filtered_by_verdict(browser, page, width):
    show(browser, page, width=width)
    everything = visible(browser)
    box = browser.find_element("css selector", "input[value=not-run]")
    box.click()
    assert visible(browser) == [each for each in everything if each != "not-run"]
    told = browser.find_element("css selector", "[role=status]").text
    assert told == f"{len(visible(browser))} of {len(everything)} claims"
    counted = browser.find_element("css selector", ".filters label.not-run b").text
    assert int(counted) == everything.count("not-run") > 0
    box.click()
    assert visible(browser) == everything


def test_the_keyboard_is_enough(browser, page):
    from selenium.webdriver.common.keys import Keys

    show(browser, page)
    press(browser, Keys.TAB)
    assert browser.switch_to.active_element.get_attribute("class") == "skip"
    press(browser, Keys.ENTER, Keys.TAB)
    box = browser.switch_to.active_element
    assert box.get_attribute("name") == "verdict"
    press(browser, Keys.SPACE)
    assert box.get_attribute("value") not in visible(browser)
    press(browser, Keys.SPACE)
    for _ in range(5):  # the boxes, then the first header
        press(browser, Keys.TAB)
    button = browser.switch_to.active_element
    assert button.tag_name == "button"
    assert browser.execute_script("return getComputedStyle(arguments[0]).outlineStyle", button) == "solid"
    press(browser, Keys.ENTER)
    assert header(browser, "claim").get_attribute("aria-sort") == "ascending"
    for _ in range(7):
        press(browser, Keys.TAB)
        if browser.switch_to.active_element.tag_name == "summary":
            break
    press(browser, Keys.ENTER)
    opened = browser.execute_script("return document.activeElement.parentElement.open")
    assert opened is True


@pytest.mark.parametrize("which", ["page", "empty_page"])
@pytest.mark.parametrize("width", [375, 768, 1280])
def test_nothing_is_wider_than_the_screen(browser, request, which, width):
    show(browser, request.getfixturevalue(which), width=width)
    browser.execute_script("for (const each of document.querySelectorAll('details')) each.open = true")
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize("which", ["page", "empty_page"])
@pytest.mark.parametrize("dark", [False, True])
def test_text_stands_out_from_its_background(browser, request, which, dark):
    show(browser, request.getfixturevalue(which), dark=dark)
    background = browser.execute_script("return getComputedStyle(document.body).backgroundColor")
    assert (sum(map(int, background[4:-1].split(","))) < 3 * 64) == dark
    found = browser.execute_script(CONTRAST)
    assert len(found) > 100
    assert [(round(ratio, 2), text[:60]) for ratio, text in found if ratio < 4.5] == []


def test_figures_are_turned_for_dark_screens_only(browser, page):
    filters = {}
    for dark in (False, True):
        show(browser, page, dark=dark)
        filters[dark] = browser.execute_script("return getComputedStyle(document.images[0]).filter")
    assert filters[False] == "none"
    assert filters[True].startswith("invert")


def test_without_scripts_everything_is_there(browser, page):
    show(browser, page)
    claims = len(visible(browser))
    try:
        show(browser, page, scripts=False)
        tree = browser.execute_cdp_cmd("Accessibility.getFullAXTree", {})["nodes"]
    finally:
        browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})
    roles = [node.get("role", {}).get("value") for node in tree]
    assert roles.count("row") > 2 * claims
    assert "checkbox" not in roles


def test_prints_in_dark_ink_on_white_with_everything_open(browser, page):
    show(browser, page, width=700)
    printed = browser.execute_cdp_cmd("Page.printToPDF", {"printBackground": True, "preferCSSPageSize": True})
    assert base64.b64decode(printed["data"]).startswith(b"%PDF")
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print", "features": [DARK]})
    shown = browser.execute_script(
        "return [...document.querySelectorAll('.filters, nav')].map(each => getComputedStyle(each).display)"
    )
    commands = browser.execute_script(
        "return [...document.querySelectorAll('.more .command')].every(each => each.checkVisibility())"
    )
    background = browser.execute_script("return getComputedStyle(document.body).backgroundColor")
    faint = [text for ratio, text in browser.execute_script(CONTRAST) if ratio < 4.5]
    rows = browser.execute_script("return getComputedStyle(document.querySelector('table.claims tbody tr')).display")
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "", "features": []})
    assert background == "rgb(255, 255, 255)"
    assert faint == []
    assert rows == "table-row"
    assert set(shown) == {"none"}
    assert commands is True
