#!/usr/bin/env python3
"""Writes vectors.json: the sampling contract computed a second time, apart from Tandem's code.

Usage: make_vectors.py > vectors.json        (Python 3.11, numpy)

README.md is the description that this follows. Every fp32 operation is one numpy.float32 operation,
rounded once to nearest even; masses are Python integers; floats are written as their bits. What is
computed is compared with double precision on the way, so that a slip in the polynomials would not
become the definition.
"""

import json
import math
import platform
import random
import sys

import numpy as np

from cases import all_cases

F = np.float32
MASK = 0xFFFFFFFF
LIMIT = F(1e30)
LN2_HIGH, LN2_LOW = F(0.693359375), F(-2.12194440e-4)
EXP = [1.39506576e-3, 8.36898501e-3, 4.16662033e-2, 1.66665180e-1, 5.00000010e-1]
LOG = [
    -7.85966638e-2,
    1.28816194e-1,
    -1.31287200e-1,
    1.41811949e-1,
    -1.66245583e-1,
    2.00022862e-1,
    -2.50008103e-1,
    3.33333167e-1,
]


def bits(x):
    return int(np.array(x, np.float32).view(np.uint32))


def from_bits(b):
    return np.array(b, np.uint32).view(np.float32)[()]


# ---- the noise -----------------------------------------------------------------------------------


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
    u = uniform(word)
    result = F(-log(F(-log1p(F(-u)))))
    assert abs(float(result) + math.log(-math.log1p(-float(u)))) < 4e-6, word
    return result


def gumbel(seed, choice, position, token):
    words = philox([token // 4, position, choice, 0], [seed & MASK, seed >> 32])
    return gumbel_of_word(words[token % 4])


# ---- weights -------------------------------------------------------------------------------------


def exp(x):
    if not x >= F(-87):
        return F(0)
    n = int(F(F(x * F(1.44269504)) - F(0.5)))
    r = F(F(x - F(F(n) * LN2_HIGH)) - F(F(n) * LN2_LOW))
    result = F(F(F(1) + F(r + F(F(r * r) * horner(EXP, r)))) * F(2.0**n))
    assert abs(float(result) / math.exp(float(x)) - 1) < 2.0**-22, x
    return result


def weight(s):
    # The fp32 exponential times 2^40 is exact in double.
    return math.floor(float(exp(s)) * 2.0**40 + 0.5)


def fixed32(share):
    return math.floor(float(F(share)) * 2.0**32 + 0.5)


# ---- a case --------------------------------------------------------------------------------------

DEFAULTS = dict(
    seed=0,
    temperature=0.0,
    top_k=0,
    top_p=1.0,
    min_p=0.0,
    repetition_penalty=1.0,
    presence_penalty=0.0,
    frequency_penalty=0.0,
    repetition_window=0,
    presence_window=0,
    frequency_window=0,
    min_tokens=0,
    logit_bias=[],
    allowed_ids=[],
    banned_ids=[],
    end_ids=[],
    want_raw=False,
    num_raw_top=0,
    report_ids=[],
    num_top=20,
    num_perturbed=8,
)


def counts(tokens, begin):
    result = {}
    for token in tokens[begin:]:
        result[token] = result.get(token, 0) + 1
    return result


def adjusted_row(case, p, tokens):
    """{id: adjusted logit} of the ids inside the row."""
    prompt, position = case["prompt_length"], len(tokens)

    def output_begin(window):
        return max(prompt, position - window if window else 0)

    repeated = counts(
        tokens, max(0, position - p["repetition_window"] if p["repetition_window"] else 0)
    )
    present = counts(tokens, output_begin(p["presence_window"]))
    frequent = counts(tokens, output_begin(p["frequency_window"]))
    bias = dict(p["logit_bias"])
    inside = [
        i for i in range(len(case["logits"])) if not p["allowed_ids"] or i in p["allowed_ids"]
    ]
    outside = set(p["banned_ids"]) | set(case["undefined_ids"])
    if position < prompt + p["min_tokens"]:
        outside |= set(p["end_ids"])
    row = {}
    for i in inside:
        if i in outside:
            continue
        x = F(case["logits"][i])
        if i in bias and F(bias[i]) != 0:
            x = F(x + F(bias[i]))
        if i in repeated:
            penalty = F(p["repetition_penalty"])
            x = F(x / penalty) if x > 0 else F(x * penalty)
        if i in present:
            x = F(x - F(p["presence_penalty"]))
        if i in frequent:
            x = F(x - F(F(p["frequency_penalty"]) * F(frequent[i])))
        row[i] = LIMIT if x > LIMIT else -LIMIT if x < -LIMIT else x
    return row


def raw_part(logits, p):
    by_raw = sorted(range(len(logits)), key=lambda i: (-float(logits[i]), i))
    rank = {token: place for place, token in enumerate(by_raw)}
    entry = lambda i: [i, bits(logits[i]), rank[i]]
    raw_max = logits[by_raw[0]]
    return rank, dict(
        raw_max=bits(raw_max),
        raw_total=sum(weight(F(x - raw_max)) for x in logits),
        raw_top=[entry(i) for i in by_raw[: p["num_raw_top"]]],
        reported=[entry(i) for i in p["report_ids"]],
    )


def decide(case):
    """The case with what its parameters come to, the whole row, the lists and the decisions."""
    p = {**DEFAULTS, **case["parameters"]}
    tokens = [token for token, count in case["history"] for _ in range(count)]
    position = len(tokens)
    logits = [F(x) for x in case["logits"]]
    greedy = p["temperature"] == 0
    r = F(1) if greedy else F(F(1) / F(p["temperature"]))
    p_fixed, min_weight = fixed32(p["top_p"]), fixed32(p["min_p"]) << 8
    out = dict(
        name=case["name"],
        logits=[bits(x) for x in logits],
        history=case["history"],
        prompt_length=case["prompt_length"],
        choice=case["choice"],
        undefined_ids=case["undefined_ids"],
        parameters={k: str(v) if k == "seed" else v for k, v in case["parameters"].items()},
        position=position,
        inverse_temperature=bits(r),
        top_p_fixed=p_fixed,
        min_p_weight=min_weight,
    )
    bad = [i for i, x in enumerate(logits) if not np.isfinite(x)]
    if bad:
        return dict(out, kind="non_finite", token=bad[0])
    adjusted = adjusted_row(case, p, tokens)
    if not adjusted:
        return dict(out, kind="no_token", token=-1)

    order = sorted(adjusted, key=lambda i: (-float(adjusted[i]), i))
    row_max = adjusted[order[0]]
    s = {i: F(F(adjusted[i] - row_max) * r) for i in order}
    w = {i: weight(s[i]) for i in order}
    noise = {
        i: F(0) if greedy else gumbel(int(p["seed"]), case["choice"], position, i) for i in order
    }
    perturbed = {i: s[i] if greedy else F(s[i] + noise[i]) for i in order}
    above, total = {}, 0
    for i in order:
        above[i] = total
        total += w[i]
    top_k = p["top_k"] if 0 < p["top_k"] < len(order) else len(order)
    top_k_weight = sum(w[i] for i in order[:top_k])
    keeps = [
        rank == 0
        or (
            rank < top_k
            and (p_fixed == 2**32 or above[i] * 2**32 < p_fixed * top_k_weight)
            and w[i] >= min_weight
        )
        for rank, i in enumerate(order)
    ]
    num_kept = sum(keeps)
    assert all(keeps[:num_kept]), "what is kept is a prefix of the order"
    of_the_draw = lambda i: (-float(perturbed[i]), i)
    token = min(order[:num_kept], key=of_the_draw)

    by_draw = sorted(order, key=of_the_draw)
    rank_of = {i: rank for rank, i in enumerate(order)}
    top, listed = order[: p["num_top"]], by_draw[: p["num_perturbed"]]
    kept_listed = [i for i in listed if keeps[rank_of[i]]]
    # The kept set ends inside the top list if an id of it, or the id that follows it, is known to
    # be out: by its rank and the mass above it alone, since its weight is not known.
    mass_of_top = sum(w[i] for i in top)
    ends_inside = (
        len(top) == len(order)
        or num_kept < len(top)
        or len(top) >= top_k
        or (p_fixed < 2**32 and mass_of_top * 2**32 >= p_fixed * top_k_weight)
    )
    from_lists = kept_listed[0] if kept_listed else token if ends_inside else -1
    assert from_lists in (-1, token)
    lists = dict(
        top=[[i, bits(logits[i]), bits(adjusted[i])] for i in top],
        perturbed=[
            [i, bits(logits[i]), bits(adjusted[i]), bits(perturbed[i]), rank_of[i], above[i]]
            for i in listed
        ],
        next_perturbed=bits(
            perturbed[by_draw[len(listed)]] if len(listed) < len(order) else -np.inf
        ),
        token=from_lists,
    )
    if p["want_raw"]:
        raw_rank, lists["raw"] = raw_part(logits, p)
        lists["raw"]["top_raw_ranks"] = [raw_rank[i] for i in top]
        lists["raw"]["perturbed_raw_ranks"] = [raw_rank[i] for i in listed]
    return dict(
        out,
        kind="token",
        token=token,
        row=dict(
            order=order,
            adjusted=[bits(adjusted[i]) for i in order],
            weights=[w[i] for i in order],
            noise=[bits(noise[i]) for i in order],
            perturbed=[bits(perturbed[i]) for i in order],
            row_max=bits(row_max),
            total_weight=total,
            top_k_weight=top_k_weight,
            kept=num_kept,
        ),
        lists=lists,
    )


def main():
    np.seterr(over="ignore", under="ignore", invalid="ignore")
    rng = random.Random(20250101)
    cases = all_cases(rng)

    counters = [
        ([0] * 4, [0] * 2),
        ([MASK] * 4, [MASK] * 2),
        ([0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344], [0xA4093822, 0x299F31D0]),
    ]
    counters += [
        ([rng.getrandbits(32) for _ in range(4)], [rng.getrandbits(32) for _ in range(2)])
        for _ in range(12)
    ]
    words = [0, 1, 2, 255, 2**16, 2**24 - 1, 2**24 + 1, 2**31, 2**32 - 129, 2**32 - 128, 2**32 - 1]
    words += [rng.getrandbits(32) for _ in range(40)]
    places = [
        (0, 0, 0, 0),
        (1, 0, 1, 3),
        (2**64 - 1, 2**32 - 1, 2**31 - 1, 2**18 - 1),
        (2**32, 1, 65536, 65536),
        (2**32 + 1, 0, 2**17 + 1, 49151),
    ]
    places += [
        (rng.getrandbits(64), rng.randrange(64), rng.randrange(2**20), rng.randrange(2**18))
        for _ in range(30)
    ]
    exps = [0.0, -1e-30, -1.0, -27.7, -28.4, -28.5, -86.99, -87.0, -87.01, -math.inf]
    exps = [F(x) for x in exps + [-rng.expovariate(0.125) for _ in range(40)]]
    logs = [
        F(x)
        for x in [1.0, 0.5, 2.0, 2.0**-126, 2.0**100, 0.70710677, 0.70710684]
        + [math.exp(rng.uniform(-30, 30)) for _ in range(25)]
    ]
    log1ps = [
        F(x)
        for x in [-(2.0**-33), -1e-3, -0.25, -0.2928932, -0.29289323, -0.5, -(1 - 2.0**-24)]
        + [-rng.random() for _ in range(25)]
    ]
    sections = dict(
        philox=[dict(counter=c, key=k, block=philox(c, k)) for c, k in counters],
        log=[[bits(x), bits(log(x))] for x in logs],
        log1p=[[bits(x), bits(log1p(x))] for x in log1ps],
        exp_and_weight=[[bits(x), bits(exp(x)), weight(x)] for x in exps],
        noise_of_words=[[w, bits(uniform(w)), bits(gumbel_of_word(w))] for w in words],
        noise_of_ids=[[str(a), b, c, d, bits(gumbel(a, b, c, d))] for a, b, c, d in places],
        cases=[decide(case) for case in cases],
    )
    made_by = "make_vectors.py, Python %s, numpy %s" % (platform.python_version(), np.__version__)
    head = '"format": 1,\n"made_by": "%s",\n"description": "README.md"' % made_by
    lines = [
        '"%s": [\n%s\n]' % (name, ",\n".join(json.dumps(x, separators=(",", ":")) for x in rows))
        for name, rows in sections.items()
    ]
    sys.stdout.write("{\n" + ",\n".join([head] + lines) + "\n}\n")


if __name__ == "__main__":
    main()
