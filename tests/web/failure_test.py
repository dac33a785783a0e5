#!/usr/bin/env python3
"""The playground in front of servers that refuse, break off, or say something wicked.

usage: failure_test.py
"""

import json
import sys

import browser
from page_server import PageServer
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

WICKED = '<img src=x onerror="alert(1)"><script>alert(2)</script><b>bold</b> [x](javascript:alert(3))'


def text_chunk(text):
    return json.dumps({"choices": [{"index": 0, "delta": {"content": text}}]})


def answer(*texts):
    end = json.dumps({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
    return [*map(text_chunk, texts), end, "[DONE]"]


class Page:
    def __init__(self, driver, server):
        self.driver = driver
        self.server = server

    def id(self, name):
        return self.driver.find_element(By.ID, name)

    def all(self, selector):
        return self.driver.find_elements(By.CSS_SELECTOR, selector)

    def first(self, selector):
        found = self.all(selector)
        assert found, f"nothing is there of {selector}"
        return found[0]

    def open(self):
        self.driver.get(self.server.url)
        self.wait(lambda: self.id("model").get_property("value") == "m" or self.id("notice").is_displayed(), "the models")

    def wait(self, condition, what):
        return browser.wait(self.driver, condition, what, seconds=30)

    def ask(self, prompt, *scripted):
        self.server.answers.extend(scripted)
        self.id("prompt").send_keys(prompt, Keys.ENTER)
        self.settle()

    def settle(self):
        """Until every scripted answer was taken, and the page is done with it."""
        self.wait(lambda: not self.server.answers and not self.id("stop").is_displayed(), "the end of the request")

    def press(self, label):
        [button for button in self.all("#thread .actions button") if button.text == label][-1].click()

    def texts(self):
        return [turn.get_property("textContent") for turn in self.all("#thread .turn .text")]

    def notice(self):
        return self.id("notice").text if self.id("notice").is_displayed() else ""


def same(got, wanted, what):
    assert got == wanted, f"{what}: {got!r}, expected {wanted!r}"


def test_a_key_is_asked_for_and_sent(page):
    page.server.key = "sesame"
    page.open()
    same(page.notice(), "The server wants an API key, or another one (401): no valid API key.", "without a key")
    page.id("api-key").send_keys("sesame", Keys.TAB)
    page.wait(lambda: page.notice() == "" and page.id("model").get_property("value") == "m", "the models, with a key")
    page.ask("hi", answer("Hello"))
    same(page.server.posts[-1][1]["Authorization"], "Bearer sesame", "the key")
    page.id("show-code").click()
    assert "sesame" not in page.id("code-text").text, "the key is not shown in the command"
    page.first("#code [data-close]").click()
    page.server.key = ""
    page.open()
    same(page.id("api-key").get_property("value"), "", "the key, once the page was left")


def test_a_refusal_leaves_the_message_to_be_sent_again(page):
    page.open()
    page.ask("first", (429, {"Retry-After": "3"}, '{"error": {"message": "256 generations run"}}'))
    same(page.notice(), "The server has all the work that it takes now (429): 256 generations run. Try again in 3 s.",
         "the notice")
    same((page.texts(), page.id("prompt").get_property("value")), ([], "first"), "turns and prompt")
    page.ask("", answer("one", " two"))
    same((page.notice(), page.texts()), ("", ["first", "one two"]), "then")


def test_a_refusal_leaves_the_answer_that_was_there(page):
    page.server.answers.append((503, {}, "no JSON"))
    page.press("Regenerate")
    page.settle()
    same(page.notice(), "No worker is there to answer (503).", "the notice")
    same(page.texts(), ["first", "one two"], "the turns")


def test_an_edited_message_is_answered_again(page):
    page.server.answers.append(answer("three"))
    page.driver.execute_script("document.querySelector('.turn.user .actions button:nth-child(2)').click()")
    box = page.first("textarea.edit")
    box.send_keys(" more", Keys.ENTER)
    page.settle()
    same(page.texts(), ["first more", "three"], "the turns")
    same(json.loads(page.server.posts[-1][2])["messages"], [{"role": "user", "content": "first more"}], "the messages")


def test_what_came_before_the_end_of_the_connection_is_kept(page):
    page.open()
    page.server.answers.append([text_chunk("half an"), None])
    page.id("prompt").send_keys("say", Keys.ENTER)
    page.wait(lambda: page.texts() == ["say", "half an"], "half an answer")
    page.server.cut.set()
    page.settle()
    same(page.texts(), ["say", "half an"], "the turns after a lost connection")
    same(page.first("#thread .turn .notice").text, "The connection was lost. What had come is kept.", "the note")
    for chunks, message in (
            ([text_chunk("half an")], "The answer broke off. What had come is kept."),
            ([text_chunk("half an"), "{"], "The server sent something that is no answer. What had come is kept."),
            ([text_chunk("half an"), '{"error": {"message": "a worker was lost"}}'],
             "The server ended the answer: a worker was lost")):
        page.open()
        page.ask("say", chunks)
        same(page.texts(), ["say", "half an"], f"the turns of: {message}")
        same(page.first("#thread .turn .notice").text, message, "the note")
        same(page.first("#thread .numbers [data-name=finish] dd").text, "broken off", "the end")


def test_text_is_never_html(page):
    for tokens in (False, True):
        page.open()
        if tokens:
            page.id("toggle-tokens").click()
        page.ask("x" + WICKED, answer(WICKED, WICKED))
        same(page.texts(), ["x" + WICKED, WICKED + WICKED], f"the turns, token view {tokens}")
        same(page.all("#thread img, #thread script, #thread b, #thread a"), [], "elements")


def test_a_server_without_token_details_is_enough(page):
    page.open()
    page.id("toggle-tokens").click()
    page.ask("hi", answer("no", " tokens"))
    same(page.texts()[-1], "no tokens", "the text")
    same(page.first("#thread .numbers [data-name=output] dd").text, "2", "output")
    chunk = {"choices": [{"delta": {"content": "a"}, "logprobs": {"content": [
        {"token": "a", "bytes": [97], "logprob": -0.1, "top_logprobs": []}]}}]}
    page.ask("again", [json.dumps(chunk), "[DONE]"])
    page.all(".token")[-1].click()
    page.wait(page.id("tooltip").is_displayed, "the tooltip")
    assert "90.5 %" in page.id("tooltip").text and "decided" not in page.id("tooltip").text, page.id("tooltip").text


def test_a_request_has_what_the_controls_say(page):
    page.open()
    for name, text in (("system", "be short"), ("p-top_k", "7"), ("stops", "a\\n\nb"), ("seed", "18446744073709551615")):
        page.id(name).send_keys(Keys.CONTROL, "a")
        page.id(name).send_keys(text)
    page.ask("hi", answer("x"))
    sent = json.loads(page.server.posts[-1][2])
    same(page.server.posts[-1][0], "/v1/chat/completions", "the path")
    same([message["role"] for message in sent["messages"]], ["system", "user"], "roles")
    same((sent["top_k"], sent["stop"], sent["seed"]), (7, ["a\n", "b"], 18446744073709551615), "fields")
    same((sent["stream_options"], sent["tandem"]), ({"include_usage": True}, {"token_details": True}), "options")
    page.id("reset").click()
    page.ask("hi", answer("y"))
    sent = json.loads(page.server.posts[-1][2])
    same([key for key in ("top_k", "stop", "seed") if key in sent], [], "after a reset")


TESTS = (test_a_key_is_asked_for_and_sent, test_a_refusal_leaves_the_message_to_be_sent_again,
         test_a_refusal_leaves_the_answer_that_was_there, test_an_edited_message_is_answered_again,
         test_what_came_before_the_end_of_the_connection_is_kept, test_text_is_never_html,
         test_a_server_without_token_details_is_enough, test_a_request_has_what_the_controls_say)


def main():
    driver = browser.start()
    browser.set_window(driver, 1280, 800)
    try:
        with PageServer() as server:
            page = Page(driver, server)
            for test in TESTS:
                try:
                    test(page)
                    # The browser itself notes each failed request, and nothing else may be there.
                    complaints = [line for line in browser.take_complaints(driver) if "Failed to load resource" not in line]
                    same(complaints, [], "complaints of the browser")
                    print(f"ok {test.__name__}")
                except AssertionError as error:
                    print(f"FAILED {test.__name__}: {error}")
                    return 1
    finally:
        driver.quit()
    return 0


if __name__ == "__main__":
    sys.exit(main())
