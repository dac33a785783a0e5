#!/usr/bin/env python3
"""Tests of the playground's functions: unit_tests.js in a headless browser, and its commands and programs in a shell and Python.

usage: unit_test.py
"""

import contextlib
import io
import json
import os
import pathlib
import shlex
import subprocess
import sys
import types

import browser
import page_server

HERE = pathlib.Path(__file__).parent
def check_shell(result):
    """Every quoted word is one word of the shell, and no character of it is anything else."""
    for text, word in zip(result["texts"], result["words"], strict=True):
        got = subprocess.run(["sh", "-c", f"printf '%s|' {word}"], capture_output=True, check=True).stdout
        assert got.decode() == text + "|", f"sh makes {got!r} of {word}, expected {text!r}"
    # The command itself, with a curl that prints its arguments.
    script = 'curl() { for a in "$@"; do printf \'%s\\0\' "$a"; done; }\n' + result["curl"]
    got = subprocess.run(["sh", "-c", script], capture_output=True, check=True,
                         env={"PATH": os.defpath, "TANDEM_API_KEY": "a key"}).stdout.decode()
    words = got.split("\0")[:-1]
    expected = ["-N", "http://h:1/v1/it's", "-H", "Content-Type: application/json", "-H",
                "Authorization: Bearer a key", "-d"]
    assert words[:-1] == expected, f"curl gets {words[:-1]}"
    assert json.loads(words[-1]) == json.loads(result["body"]), f"curl sends {words[-1]}"
    assert shlex.split(result["curl"].replace("\\\n", " "))[0] == "curl"


def check_python(result):
    """The program asks the client library for what the page would have sent."""
    calls = []

    class Client:
        def __init__(self, **arguments):
            assert arguments["base_url"] == "http://h:1/v1", arguments
            assert arguments["api_key"] in ("none", "a key"), arguments
            self.chat = types.SimpleNamespace(completions=self)

        def create(self, **arguments):
            arguments.update(arguments.pop("extra_body"))
            calls.append(arguments)
            return []

    module = types.ModuleType("openai")
    module.OpenAI = Client
    sys.modules["openai"] = module
    os.environ["TANDEM_API_KEY"] = "a key"
    for program in result["python"]:
        with contextlib.redirect_stdout(io.StringIO()):
            exec(compile(program, "program", "exec"), {})
    assert calls == 2 * [json.loads(result["body"])], f"Python asks for {calls}"


def main():
    driver = browser.start()
    try:
        with page_server.PageServer() as server:
            driver.get(server.url)
            driver.set_script_timeout(60)
            result = driver.execute_async_script((HERE / "unit_tests.js").read_text("utf-8"))
    finally:
        driver.quit()
    for failure in result["failures"]:
        print(f"FAILED {failure}")
    if result["failures"]:
        return 1
    check_shell(result)
    check_python(result)
    print(f"{result['count']} tests passed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
