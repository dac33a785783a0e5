#!/usr/bin/env python3
"""Writes vectors.json: the draw's definition computed a second time, in numpy, from its description alone.

Usage: make_vectors.py > vectors.json
Every fp32 operation is a numpy.float32 operation, rounded once to nearest even. The logarithm and the exponential are the
polynomials that kernels/draw/math.h states; the rest follows the text of kernels/draw/*.h. Floats are written as their bits.
"""
import json
import platform
import sys

import numpy as np

F = np.float32
MASK = 0xFFFFFFFF
LN2_HIGH, LN2_LOW = F(0.693359375), F(-2.12194440e-4)


def bits(x):
    return int(np.array(x, np.float32).view(np.uint32))


def from_bits(b):
    return np.array(b, np.uint32).view(np.float32)[()]


def philox(counter, key):
    c, k = list(counter), list(key)
    for _ in range(10):
        p0, p1 = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(p1 >> 32) ^ c[1] ^ k[0], p1 & MASK, (p0 >> 32) ^ c[3] ^ k[1], p0 & MASK]
        k = [(k[0] + 0x9E3779B9) & MASK, (k[1] + 0xBB67AE85) & MASK]
    return c


def horner(coefficients, x):
    result = F(coefficients[0])
    for c in coefficients[1:]:
        result = F(F(result * x) + F(c))
    return result


def exp(x):
    if not x >= F(-87):
        return F(0)
    n = int(F(F(x * F(1.44269504)) - F(0.5)))
    r = F(F(x - F(F(n) * LN2_HIGH)) - F(F(n) * LN2_LOW))
    q = horner([1.39506576e-3, 8.36898501e-3, 4.16662033e-2, 1.66665180e-1, 5.00000010e-1], r)
    return F(F(F(1) + F(r + F(F(r * r) * q))) * F(2.0**n))


LOG = [-7.85966638e-2, 1.28816194e-1, -1.31287200e-1, 1.41811949e-1, -1.66245583e-1, 2.00022862e-1, -2.50008103e-1,
       3.33333167e-1]


def log_of_parts(exponent, f):
    f2 = F(f * f)
    tail = F(F(f * f2) * horner(LOG, f))
    tail = F(tail + F(F(exponent) * LN2_LOW))
    tail = F(tail - F(F(0.5) * f2))
    return F(F(F(exponent) * LN2_HIGH) + F(f + tail))


def split(x):
    """x = 2^e m, m in [sqrt(1/2), sqrt(2)): (e, m - 1)."""
    shifted = bits(x) + 0x3F800000 - 0x3F3504F3
    return (shifted >> 23) - 127, F(from_bits((shifted & 0x7FFFFF) + 0x3F3504F3) - F(1))


def log(x):
    return log_of_parts(*split(x))


def log1p(x):
    e, f = split(F(F(1) + x))
    return log_of_parts(e, x if e == 0 else f)


def uniform(word):
    u = F(F(F(word) + F(0.5)) * F(2.0**-32))
    return min(u, F(1 - 2.0**-24))


def gumbel_of_word(word):
    return F(-log(F(-log1p(F(-uniform(word))))))


def gumbel(seed, choice, position, token):
    words = philox([token // 4, position, choice, 0], [seed & MASK, seed >> 32])
    return gumbel_of_word(words[token % 4])


def weight(s):
    # Exact in double: the fp32 exponential times 2^40 is below 2^41.
    return int(np.floor(float(exp(s)) * 2.0**40 + 0.5))


DEFAULTS = dict(seed=0, choice=0, temperature=0.0, top_k=0, top_p=1.0, min_p=0.0, repetition_penalty=1.0, presence_penalty=0.0,
                frequency_penalty=0.0, repetition_window=0, presence_window=0, frequency_window=0, prompt_length=1,
                min_tokens=0, bias={}, allowed=None, end_ids=[], tokens=[0])


def edit(c, token, raw):
    position = len(c["tokens"])
    x = F(raw)
    if token in c["bias"]:
        x = F(x + F(c["bias"][token]))

    def count(begin):
        return sum(1 for t in c["tokens"][max(0, begin):] if t == token)

    def output_begin(window):
        return max(c["prompt_length"], position - window if window else 0)

    if count(position - c["repetition_window"] if c["repetition_window"] else 0):
        penalty = F(c["repetition_penalty"])
        x = F(x / penalty) if x > 0 else F(x * penalty)
    if count(output_begin(c["presence_window"])):
        x = F(x - F(c["presence_penalty"]))
    n = count(output_begin(c["frequency_window"]))
    if n:
        x = F(x - F(F(c["frequency_penalty"]) * F(n)))
    return max(min(x, F(1e30)), F(-1e30))


def decide(logits, **given):
    c = {**DEFAULTS, **given}
    position = len(c["tokens"])
    greedy = c["temperature"] == 0
    r = F(1) if greedy else F(F(1) / F(c["temperature"]))
    p_fixed = int(round(c["top_p"] * 2.0**32))
    min_weight = int(round(c["min_p"] * 2.0**32)) << 8
    result = dict(c, logits=[bits(x) for x in logits], inverse_temperature=bits(r), top_p_fixed=p_fixed,
                  min_p_weight=min_weight, seed=str(c["seed"]), bias=[[k, bits(v)] for k, v in c["bias"].items()])
    for name in ("repetition_penalty", "presence_penalty", "frequency_penalty"):
        result[name] = bits(F(c[name]))
    bad = [i for i, x in enumerate(logits) if not np.isfinite(F(x))]
    if bad:
        return dict(result, first_nonfinite=bad[0], token=-1, order=[], kept=0)
    inside = [i for i in range(len(logits)) if c["allowed"] is None or i in c["allowed"]]
    if position < c["prompt_length"] + c["min_tokens"]:
        inside = [i for i in inside if i not in c["end_ids"]]
    adjusted = {i: edit(c, i, logits[i]) for i in inside}
    order = sorted(inside, key=lambda i: (-float(adjusted[i]), i))
    if not order:
        return dict(result, first_nonfinite=-1, token=-1, order=[], kept=0)
    row_max = adjusted[order[0]]
    s = {i: F(F(adjusted[i] - row_max) * r) for i in order}
    w = {i: weight(s[i]) for i in order}
    cut = order[:c["top_k"]] if c["top_k"] else order
    total_k = sum(w[i] for i in cut)
    kept, above = [], 0
    for rank, i in enumerate(cut):
        nucleus = p_fixed >= 2**32 or above * 2**32 < p_fixed * total_k
        if rank == 0 or (nucleus and w[i] >= min_weight):
            kept.append(i)
        above += w[i]
    assert kept == order[:len(kept)]
    perturbed = {i: s[i] if greedy else F(s[i] + gumbel(c["seed"], c["choice"], position, i)) for i in order}
    token = min(kept, key=lambda i: (-float(perturbed[i]), i))
    return dict(result, first_nonfinite=-1, token=token, order=order, kept=len(kept), adjusted=[bits(adjusted[i]) for i in order],
                weights=[w[i] for i in order], perturbed=[bits(perturbed[i]) for i in order], top_k_weight=total_k)


def main():
    rng = np.random.default_rng(20)
    row = [F(x) for x in rng.normal(0, 3, 13)]
    flat = [F(1.5)] * 7
    nan_row = row[:4] + [F("nan")] + row[5:]
    inf_row = row[:9] + [F("-inf")] + row[10:]
    history = [1, 3, 3, 5, 3, 8, 5, 5, 12, 1]
    cases = {
        "greedy": decide(row),
        "greedy, tie": decide(flat),
        "greedy, tie behind id 0": decide([F(0), F(2), F(2), F(1)]),
        "greedy, -0 equals 0": decide([F(-0.0), F(0.0), F(-1)]),
        "draw": decide(row, temperature=1.0, seed=7),
        "draw, cold": decide(row, temperature=1e-5, seed=7),
        "draw, hot": decide(row, temperature=100.0, seed=7),
        "draw, flat row": decide(flat, temperature=1.0, seed=2**63 + 5, choice=3),
        "top_k 1": decide(row, temperature=2.0, seed=1, top_k=1),
        "top_k 3": decide(row, temperature=2.0, seed=1, top_k=3),
        "top_k above the vocabulary": decide(row, temperature=2.0, seed=1, top_k=1000),
        "top_k, tie at the cut": decide(flat, temperature=1.0, seed=4, top_k=4),
        "top_p 0 keeps the best": decide(row, temperature=2.0, seed=1, top_p=0.0),
        "top_p tiny keeps the best": decide(row, temperature=2.0, seed=1, top_p=1e-7),
        "top_p 1 is off": decide(row, temperature=2.0, seed=1, top_p=1.0),
        "top_p 0.5": decide(row, temperature=2.0, seed=1, top_p=0.5),
        "top_p, exact boundary": decide([F(1)] * 4, temperature=1.0, seed=1, top_p=0.5),
        "top_p relative to top_k": decide([F(1)] * 8, temperature=1.0, seed=1, top_p=0.5, top_k=4),
        "min_p 0.1": decide(row, temperature=1.0, seed=9, min_p=0.1),
        "min_p 1 keeps ties with the best": decide([F(2), F(3), F(3), F(1)], temperature=1.0, seed=9, min_p=1.0),
        "all three cuts": decide(row, temperature=1.3, seed=11, top_k=9, top_p=0.9, min_p=0.01),
        "all banned": decide(row, allowed=[]),
        "one allowed": decide(row, temperature=1.0, allowed=[6]),
        "end ids below min_tokens": decide(row, end_ids=[int(np.argmax(row))], min_tokens=3, tokens=[0, 1, 2]),
        "end ids at min_tokens": decide(row, end_ids=[int(np.argmax(row))], min_tokens=2, tokens=[0, 1, 2]),
        "bias": decide(row, bias={2: 20.0, 5: -1e4}),
        "bias beyond the clamp": decide([F(3e38), F(1)], bias={1: 1e4}),
        "repetition": decide(row, repetition_penalty=1.3, tokens=history, prompt_length=4),
        "repetition, window": decide(row, repetition_penalty=1.3, repetition_window=2, tokens=history, prompt_length=4),
        "presence counts the output only": decide(row, presence_penalty=0.7, tokens=history, prompt_length=4),
        "frequency": decide(row, frequency_penalty=0.3, tokens=history, prompt_length=4),
        "frequency, window": decide(row, frequency_penalty=0.3, frequency_window=3, tokens=history, prompt_length=4),
        "every edit": decide(row, temperature=0.8, seed=99, choice=2, top_k=6, top_p=0.95, min_p=0.001, bias={1: 2.5},
                             repetition_penalty=1.1, presence_penalty=0.2, frequency_penalty=0.1, repetition_window=20,
                             tokens=history, prompt_length=4),
        "NaN": decide(nan_row),
        "minus infinity": decide(inf_row, temperature=1.0),
    }
    words = [0, 1, 2, 255, 2**16, 2**24 - 1, 2**24 + 1, 2**31, 2**32 - 129, 2**32 - 128, 2**32 - 1]
    words += [int(w) for w in rng.integers(0, 2**32, 40)]
    gumbels = [(0, 0, 0, 0), (1, 0, 1, 3), (2**64 - 1, 2**32 - 1, 2**31 - 1, 2**18 - 1)]
    gumbels += [(int(a), int(b), int(c), int(d)) for a, b, c, d in zip(
        rng.integers(0, 2**63, 30), rng.integers(0, 64, 30), rng.integers(0, 131072, 30), rng.integers(0, 262144, 30))]
    exps = [F(0), F(-1e-30), F(-1), F(-27.7), F(-28.4), F(-28.5), F(-86.99), F(-87), F(-87.01), F("-inf")]
    exps += [F(-x) for x in rng.exponential(8, 40)]
    sections = dict(
        made_by=[f"make_vectors.py, Python {platform.python_version()}, numpy {np.__version__}"],
        uniform_and_gumbel=[[w, bits(uniform(w)), bits(gumbel_of_word(w))] for w in words],
        gumbel=[[str(a), b, c, d, bits(gumbel(a, b, c, d))] for a, b, c, d in gumbels],
        exp_and_weight=[[bits(x), bits(exp(x)), weight(x)] for x in exps],
        decisions=[dict(name=name, **case) for name, case in cases.items()],
    )
    lines = [f'"{name}": [\n' + ",\n".join(json.dumps(x) for x in rows) + "\n]" for name, rows in sections.items()]
    sys.stdout.write("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()
