"""The Jinja2 environment that transformers renders chat templates in, without transformers.

Source: transformers 5.24.0, utils/chat_template_utils.py, as behaviour: an immutable sandbox,
trim_blocks, lstrip_blocks, break and continue, generation blocks, and its own tojson,
raise_exception, strftime_now, dict and namespace.
"""

import datetime
import json

import jinja2
import jinja2.ext
import jinja2.sandbox

NOW = datetime.datetime(2025, 7, 30, 18, 26, 40)  # 1753900000 seconds after 1970, UTC


class Generation(jinja2.ext.Extension):
    """{% generation %} marks what a model wrote, for training. It renders as its body."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_body"), [], [], body).set_lineno(line)

    def _body(self, caller):
        return caller()


def _raise_exception(message):
    raise jinja2.exceptions.TemplateError(message)


def _tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(
        x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


class _Dict:
    def __call__(self, *args, **kwargs):
        return dict(*args, **kwargs)


def make_environment():
    environment = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols]
    )
    environment.filters["tojson"] = _tojson
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["strftime_now"] = lambda format: NOW.strftime(format)
    environment.globals["dict"] = _Dict()
    return environment
