"""Writes unicode_tables.inc from Python's Unicode database: python3 make_unicode_tables.py.

The tables give what Python's str.upper, str.lower, str.title and str.isprintable say, because chat
templates are written against Python. Made with Python 3.11 (Unicode 14.0).
"""

import pathlib
import unicodedata

CODE_POINTS = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]


def mapping_ranges(mapped):
    """[first, last, step, delta] for the code points that `mapped` sends to one other code point."""
    ranges = []
    for c in CODE_POINTS:
        result = mapped(chr(c))
        if len(result) != 1 or result == chr(c):
            continue
        delta = ord(result) - c
        if ranges and ranges[-1][3] == delta:
            first, last, step, _ = ranges[-1]
            if first == last and c - last in (1, 2):
                ranges[-1] = [first, c, c - last, delta]
                continue
            if first != last and c - last == step:
                ranges[-1][1] = c
                continue
        ranges.append([c, c, 1, delta])
    return ranges


def expansions(mapped, wanted):
    return [(c, mapped(chr(c))) for c in CODE_POINTS if wanted(chr(c))]


def unprintable_ranges():
    ranges = []
    for c in range(0x110000):
        if c == 0x20 or chr(c).isprintable():
            continue
        if ranges and ranges[-1][1] == c - 1:
            ranges[-1][1] = c
        else:
            ranges.append([c, c])
    return ranges


def wrapped(cells):
    lines, line = [], "   "
    for cell in cells:
        if len(line) + len(cell) + 2 > 100:
            lines.append(line)
            line = "   "
        line += f" {cell},"
    return "\n".join(lines + [line])


def utf8_literal(text):
    # One string literal a byte: a hexadecimal escape would swallow the next digit.
    return " ".join(f'"\\x{b:02x}"' for b in text.encode()).replace('" "', "")


def main():
    out = ["// Made by make_unicode_tables.py from Unicode " + unicodedata.unidata_version + "."]

    def table(kind, name, cells):
        out.append(f"constexpr {kind} {name}[] = {{\n{wrapped(cells)}\n}};")

    for name, mapped in (("kUpper", str.upper), ("kLower", str.lower)):
        cells = [f"{{0x{a:x}, 0x{b:x}, {s}, {d}}}" for a, b, s, d in mapping_ranges(mapped)]
        table("CaseRange", name, cells)
    for name, mapped, wanted in (
        ("kUpperExpansions", str.upper, lambda s: len(s.upper()) > 1),
        ("kLowerExpansions", str.lower, lambda s: len(s.lower()) > 1),
        ("kTitles", str.title, lambda s: s.title() != s.upper()),
    ):
        cells = [f"{{0x{c:x}, {utf8_literal(t)}}}" for c, t in expansions(mapped, wanted)]
        table("CaseExpansion", name, cells)
    table("CodePointRange", "kUnprintable", [f"{{0x{a:x}, 0x{b:x}}}" for a, b in unprintable_ranges()])
    path = pathlib.Path(__file__).with_name("unicode_tables.inc")
    path.write_text("\n".join(out) + "\n")


if __name__ == "__main__":
    main()
