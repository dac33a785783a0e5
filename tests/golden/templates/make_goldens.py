"""Renders the templates of this folder with Jinja2: python3 make_goldens.py.

Needs Jinja2 3.1.6 (made with Python 3.11). Writes <template>.json beside each <template>.jinja: a
list of {"name", "text"} or {"name", "error"} over the conversations; conversations.json: their
variables, the same for all; snippets.json: the small templates of snippets.py. What an error says differs between renderers, unless the template
raised it itself: then it is in "raised".
"""

import copy
import json
import pathlib

import jinja2

import conversations
import jinja_environment
import snippets

FOLDER = pathlib.Path(__file__).parent
SPECIAL_TOKENS = {"bos_token": "<s>", "eos_token": "</s>"}


def render(template, variables):
    try:
        return {"text": template.render(**variables)}
    except jinja2.exceptions.TemplateError as error:
        if type(error) is jinja2.exceptions.TemplateError:  # raise_exception
            return {"error": True, "raised": str(error)}
        return {"error": True}
    except (TypeError, ValueError, LookupError, AttributeError, ArithmeticError, RecursionError):
        return {"error": True}


def render_source(environment, source):
    try:
        template = environment.from_string(source)
    except (jinja2.exceptions.TemplateSyntaxError, UnicodeError, SyntaxError):
        return {"error": True}
    return render(template, copy.deepcopy(snippets.VARIABLES))


def write(path, value):
    path.write_text(json.dumps(value, ensure_ascii=False, indent=1) + "\n")


def main():
    assert jinja2.__version__ == "3.1.6", jinja2.__version__
    cases = {
        name: {**variables, **SPECIAL_TOKENS}
        for name, variables in conversations.conversations().items()
    }
    write(FOLDER / "conversations.json", cases)
    environment = jinja_environment.make_environment()
    for source in sorted(FOLDER.glob("*.jinja")):
        template = environment.from_string(source.read_text())
        results = [{"name": name, **render(template, case)} for name, case in cases.items()]
        write(source.with_suffix(".json"), results)
    write(
        FOLDER / "snippets.json",
        {
            "variables": snippets.VARIABLES,
            "snippets": [
                {"template": source, **render_source(environment, source)}
                for source in snippets.snippets()
            ],
        },
    )


if __name__ == "__main__":
    main()
