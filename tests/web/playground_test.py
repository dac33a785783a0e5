#!/usr/bin/env python3
"""The playground in a headless browser, in front of a text tier that answers.

usage: playground_test.py URL [--screenshot PATH]

URL is that of the page, of a tier that serves one model with a chat template. The page has to do all that it is for without
a complaint of the browser: answer, stop, show tokens, write commands, fit a phone, be dark. With --screenshot the picture
of the documentation is written.
"""

import argparse
import json
import re
import shutil
import subprocess
import sys
import urllib.parse

from browser import prefer_colours, set_window, start, take_complaints, wait
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

PROMPT = "Why is the sky blue?"
# What is hard to quote, for the commands.
HARD_PROMPT = "It's \"$HOME\" \\ `id` é"


class Page:
    def __init__(self, driver, url):
        self.driver = driver
        self.url = url

    def open(self):
        self.driver.get(self.url)
        wait(self.driver, lambda: self.value("model"), "a model in the list")

    def id(self, name):
        return self.driver.find_element(By.ID, name)

    def all(self, selector):
        return self.driver.find_elements(By.CSS_SELECTOR, selector)

    def run(self, script, *arguments):
        return self.driver.execute_script(script, *arguments)

    def value(self, name):
        return self.id(name).get_property("value")

    def set(self, name, text):
        box = self.id(name)
        box.send_keys(Keys.CONTROL, "a")
        box.send_keys(Keys.BACKSPACE, text)

    def busy(self):
        return self.id("stop").is_displayed()

    def wait(self, condition, what):
        def checked():
            notice = self.id("notice")
            assert not notice.is_displayed(), f"while this was awaited: {what}: the page says: {notice.text}"
            return condition()
        return wait(self.driver, checked, what)

    def text(self):
        """Of the last turn that is shown."""
        return self.run("return [...document.querySelectorAll('.thread:not([hidden]) .turn .text')].at(-1)"
                        "?.textContent ?? ''")

    def numbers(self):
        """Of the last answer."""
        return self.run(
            "const list = [...document.querySelectorAll('.thread:not([hidden]) .numbers')].at(-1);"
            "return Object.fromEntries([...list?.children ?? []].map("
            "(item) => [item.dataset.name, item.lastChild.textContent]))")

    def choose(self, name, value):
        self.all(f'input[name="{name}"][value="{value}"]')[0].click()


def test_an_answer_grows_and_has_numbers(page):
    page.open()
    page.set("p-temperature", "0")
    page.set("p-max_tokens", "64")
    page.run("""
        window.lengths = [];
        new MutationObserver(() => {
          const text = [...document.querySelectorAll('#thread .assistant .text')].at(-1)?.textContent ?? '';
          if (text.length > (window.lengths.at(-1) ?? 0)) window.lengths.push(text.length);
        }).observe(document.getElementById('thread'), {subtree: true, childList: true, characterData: true});
    """)
    page.id("prompt").send_keys(PROMPT, Keys.SHIFT, Keys.ENTER, Keys.SHIFT, "In short.")
    assert page.value("prompt") == f"{PROMPT}\nIn short.", "Shift and Enter begin a new line"
    page.set("prompt", PROMPT)
    page.id("prompt").send_keys(Keys.ENTER)
    page.wait(lambda: "finish" in page.numbers() and not page.busy(), "the end of the answer")
    lengths = page.run("return window.lengths")
    assert len(lengths) >= 3, f"the text did not grow while it came, its lengths were {lengths}"
    numbers = page.numbers()
    assert float(numbers["rate"].replace(",", "")) > 0, f"tokens/s in {numbers}"
    assert re.fullmatch(r"[\d.]+ m?s", numbers["first"]), f"time to the first token in {numbers}"
    assert 0 < int(numbers["output"]) <= 64, f"output in {numbers}"
    assert int(numbers["prompt"]) > 0 and int(numbers["cached"]) >= 0, f"prompt in {numbers}"
    assert numbers["finish"] in ("complete", "cut at max tokens"), f"end in {numbers}"
    assert re.fullmatch(r"\d{1,20}", numbers.get("seed", "")), f"the seed that was used is missing in {numbers}"
    assert page.value("prompt") == "", "the prompt is empty for the next message"


def test_the_same_again_is_the_same(page):
    first = page.text()
    [button for button in page.all(".assistant .actions button") if button.text == "Regenerate"][-1].click()
    page.wait(lambda: "finish" in page.numbers() and not page.busy(), "the end of the second answer")
    assert page.text() == first, f"greedy, again: {page.text()!r}, before: {first!r}"
    assert len(page.all("#thread .turn")) == 2, "the new answer takes the place of the old one"


def test_tokens_say_how_they_were_chosen(page):
    page.id("toggle-tokens").click()
    tokens = page.all("#thread .token")
    expected = int(page.numbers()["output"])
    assert len(tokens) == expected, f"{len(tokens)} tokens are shown of {expected}"
    tokens[2].click()
    tooltip = page.id("tooltip")
    wait(page.driver, tooltip.is_displayed, "the tooltip of a token")
    shares = [row.text for row in tooltip.find_elements(By.CSS_SELECTOR, ".value")]
    assert len(shares) in (6, 7), f"5 candidates and all others have shares: {shares}"
    values = [float(re.sub("[<> %]", "", share)) for share in shares]
    assert 99 < sum(values) < 101, f"the shares are all that there is: {shares}"
    assert "rank 1" in tooltip.text, f"greedy takes the first: {tooltip.text!r}"
    facts = {row.find_element(By.TAG_NAME, "dt").text: row.find_element(By.TAG_NAME, "dd").text
             for row in tooltip.find_elements(By.CSS_SELECTOR, ".facts div")}
    assert facts.get("decided", "").startswith("exactly, from "), f"how it was decided: {facts}"
    assert re.fullmatch(r"\d+", facts.get("worker", "")), f"which worker: {facts}"
    assert re.fullmatch(r"[\d.]+ m?s", facts.get("time", "")), f"how long it took: {facts}"
    before = tooltip.text
    page.driver.switch_to.active_element.send_keys(Keys.END, Keys.ARROW_LEFT)
    index = page.run("return document.activeElement.dataset.index")
    assert index == str(expected - 2), f"End and Left lead to token {index} of {expected}"
    assert tooltip.is_displayed() and tooltip.text != before, "the tooltip goes with the focus"
    page.driver.switch_to.active_element.send_keys(Keys.ESCAPE)
    assert not tooltip.is_displayed(), "Escape closes the tooltip"


def test_code_asks_for_the_same(page):
    page.set("prompt", HARD_PROMPT)
    page.id("show-code").click()
    command = page.id("code-text").text
    page.choose("language", "python")
    program = page.id("code-text").text
    page.all("#code [data-close]")[0].click()
    page.set("prompt", "")
    compile(program, "program", "exec")
    script = 'curl() { for a in "$@"; do printf \'%s\\0\' "$a"; done; }\n' + command
    words = subprocess.run(["sh", "-c", script], capture_output=True, check=True).stdout.decode().split("\0")
    path = "v1/chat/completions"
    assert words[1] == urllib.parse.urljoin(page.url, path), f"the command asks {words[1]}"
    body = json.loads(words[-2])
    assert body["messages"][-1]["content"] == HARD_PROMPT, f"the command sends {body}"
    if shutil.which("curl") is None:
        return
    answer = subprocess.run(["sh", "-c", command.replace("curl ", "curl -sS -f ", 1)], capture_output=True, timeout=120)
    assert b"data: [DONE]" in answer.stdout, f"the command gets {answer.stdout[-500:]!r}, {answer.stderr!r}"


def test_a_long_text_can_be_stopped(page):
    page.choose("mode", "completion")
    page.set("p-max_tokens", "1500")
    for way in ("button", "Escape"):
        page.set("prompt", "One, two, three, four, five, six,")
        page.id("prompt").send_keys(Keys.ENTER)
        page.wait(lambda: page.busy() and int(page.numbers().get("output", "0")) > 4, "five tokens of a long text")
        if way == "button":
            page.id("stop").click()
        else:
            page.driver.switch_to.active_element.send_keys(Keys.ESCAPE)
        page.wait(lambda: not page.busy(), f"the end after a stop by {way}")
        numbers = page.numbers()
        assert numbers["finish"] == "stopped by you", f"after a stop by {way}: {numbers}"
        assert int(numbers["output"]) < 1500 and page.text() != "", f"what had come is kept: {numbers}"
    page.choose("mode", "chat")


def test_settings_out_of_range_are_refused(page):
    page.set("prompt", "x")
    for name, text in (("p-top_p", "1.5"), ("p-temperature", "-1"), ("seed", "one")):
        before = page.value(name)
        page.set(name, text)
        error = page.id(page.id(name).get_attribute("aria-describedby"))
        assert error.is_displayed() and error.text != "", f"{name} {text} has an error"
        assert not page.id("send").is_enabled(), f"nothing can be sent with {name} {text}"
        page.set(name, before)
        assert not error.is_displayed() and page.id("send").is_enabled(), f"{name} {before} is right again"
    page.set("prompt", "")


def luminance(page):
    colour = page.run("return getComputedStyle(document.body).backgroundColor")
    return sum(int(part) for part in re.findall(r"\d+", colour)[:3]) / 3


def test_dark_and_light(page):
    prefer_colours(page.driver, "dark")
    assert luminance(page) < 60, "dark where the system is"
    prefer_colours(page.driver, "light")
    assert luminance(page) > 200, "light where the system is"
    for label, is_right in (("Light", lambda y: y > 200), ("Dark", lambda y: y < 60), ("Auto", lambda y: y > 200)):
        page.id("theme").click()
        assert page.id("theme").text == label and is_right(luminance(page)), f"{label}: {luminance(page)}"


# Everything that is shown and can be pressed, with its size, and whether it is within the window from side to side.
CONTROLS = """
    return [...document.querySelectorAll('button, select, input:not([type=radio]), textarea, .segments label')]
        .map((control) => [control, control.getBoundingClientRect()])
        .filter(([control, box]) => box.width > 0 && control.checkVisibility() && (arguments[0] === null ||
                                     control.closest(arguments[0]) !== null))
        .map(([control, box]) => ({name: control.id || control.textContent, width: box.width, height: box.height,
                                   left: box.left, right: box.right}));
"""


def test_a_phone_has_room_for_it(page):
    set_window(page.driver, 390, 844, mobile=True)
    for place in (None, "#settings"):
        if place is not None:
            page.id("show-settings").click()
        widths = page.run("return [...document.querySelectorAll('html, main, #settings')].map("
                          "(box) => [box.scrollWidth, box.clientWidth])")
        for scroll, client in widths:
            assert scroll <= max(client, 0) or client == 0, f"{place}: {scroll} px in a width of {client} px"
        controls = page.run(CONTROLS, place)
        assert len(controls) > 5, f"{place}: only {controls}"
        for control in controls:
            assert control["left"] >= 0 and control["right"] <= 390, f"beyond the side of the window: {control}"
            assert control["height"] >= 44, f"too small for a finger: {control}"
    page.id("hide-settings").click()
    box = page.id("send").rect
    assert box["y"] + box["height"] <= 844, f"the button that sends is in view: {box}"
    set_window(page.driver, 1280, 800)


def test_keys_are_told(page):
    page.driver.switch_to.active_element.send_keys(Keys.CONTROL, "/")
    wait(page.driver, page.id("keys").is_displayed, "the keys")
    page.driver.switch_to.active_element.send_keys(Keys.ESCAPE)
    assert not page.id("keys").is_displayed(), "Escape closes them"


TESTS = (test_an_answer_grows_and_has_numbers, test_the_same_again_is_the_same, test_tokens_say_how_they_were_chosen,
         test_code_asks_for_the_same, test_a_long_text_can_be_stopped, test_settings_out_of_range_are_refused,
         test_dark_and_light, test_a_phone_has_room_for_it, test_keys_are_told)


def take_screenshot(page, path):
    """One answer in the token view, with the tooltip of a token that was no sure thing, where it hides little."""
    page.open()
    page.set("p-temperature", "0")
    page.set("p-max_tokens", "96")
    page.id("toggle-tokens").click()
    page.id("prompt").send_keys(PROMPT, Keys.ENTER)
    page.wait(lambda: "finish" in page.numbers() and not page.busy(), "the answer of the picture")
    page.run("""
        const right = (token) => token.getClientRects()[0].right;
        const tokens = [...document.querySelectorAll('.token:is(.s-2, .s-3, .s-4, .s-5)')]
            .filter((token) => token.getClientRects().length === 1);
        const top = Math.min(...tokens.map((token) => token.getClientRects()[0].top));
        tokens.filter((token) => token.getClientRects()[0].top === top).sort((a, b) => right(b) - right(a))[0].focus();
    """)
    wait(page.driver, page.id("tooltip").is_displayed, "the tooltip of the picture")
    assert page.driver.save_screenshot(path), f"{path} cannot be written"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("url")
    parser.add_argument("--screenshot", metavar="PATH")
    arguments = parser.parse_args()
    driver = start()
    failed = 0
    try:
        set_window(driver, 1280, 800)
        prefer_colours(driver, "light")
        page = Page(driver, arguments.url)
        for test in TESTS:
            try:
                test(page)
                complaints = take_complaints(driver)
                assert not complaints, "the browser complains:\n" + "\n".join(complaints)
                print(f"ok {test.__name__}")
            except AssertionError as error:
                print(f"FAILED {test.__name__}: {error}")
                failed += 1
                break  # the next one begins where this one should have ended
        if arguments.screenshot and failed == 0:
            take_screenshot(page, arguments.screenshot)
    finally:
        driver.quit()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
