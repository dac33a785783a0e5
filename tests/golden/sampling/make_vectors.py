"""Writes vectors.json: decisions of the sampling contract, computed apart from Tandem's code.

Everything that the contract rounds to fp32 is rounded with numpy.float32; exp, log and the noise are
taken in double, so that a token is recorded only where no double within 1e-4 of the best perturbed
value, and no mass within 1e-4 of a cut, could change it. Philox4x32-10 is written out from the paper
(Salmon, Moraes, Dror, Shaw, SC 2011).

Run: python3 make_vectors.py > vectors.json     (python 3.11, numpy)
"""

import json
import math
import random
import sys

import numpy

F = numpy.float32
MASK = 0xFFFFFFFF


def philox(counter, key):
    c, k = list(counter), list(key)
    for _ in range(10):
        p0, p1 = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(p1 >> 32) ^ c[1] ^ k[0], p1 & MASK, (p0 >> 32) ^ c[3] ^ k[1], p0 & MASK]
        k = [(k[0] + 0x9E3779B9) & MASK, (k[1] + 0xBB67AE85) & MASK]
    return c


def gumbel(seed, choice, position, token):
    word = philox([token // 4, position, choice, 0], [seed & MASK, seed >> 32])[token % 4]
    u = min((float(F(word)) + 0.5) * 2.0**-32, 1 - 2.0**-24)
    return -math.log(-math.log1p(-u))


def counts(tokens, first, window):
    part = tokens[first:]
    if window > 0:
        part = part[-window:]
    out = {}
    for token in part:
        out[token] = out.get(token, 0) + 1
    return out


def adjusted_row(case):
    p, tokens = case["parameters"], case["tokens"]
    prompt = case["prompt_length"]
    bias = dict(p.get("logit_bias", []))
    repeated = counts(tokens, 0, p.get("repetition_window", 0))
    present = counts(tokens, prompt, p.get("presence_window", 0))
    frequent = counts(tokens, prompt, p.get("frequency_window", 0))
    allowed = p.get("allowed_ids") or range(len(case["logits"]))
    outside = set(p.get("banned_ids", []))
    if len(tokens) < prompt + p.get("min_tokens", 0):
        outside |= set(p.get("end_ids", []))
    row = []
    for token in sorted(allowed):
        if token in outside:
            continue
        x = F(case["logits"][token])
        if token in bias:
            x = F(x + F(bias[token]))
        penalty = F(p.get("repetition_penalty", 1.0))
        if token in repeated:
            x = F(x / penalty) if x > 0 else F(x * penalty)
        if token in present:
            x = F(x - F(p.get("presence_penalty", 0.0)))
        if token in frequent:
            x = F(x - F(F(p.get("frequency_penalty", 0.0)) * F(frequent[token])))
        row.append((token, F(min(max(x, F(-1e30)), F(1e30)))))
    return sorted(row, key=lambda entry: (-entry[1], entry[0]))


def decide(case):
    """The token; -1: no id in the row; None: too close to call in double."""
    p = case["parameters"]
    row = adjusted_row(case)
    if not row:
        return -1
    temperature = p.get("temperature", 0.0)
    if temperature == 0:
        return row[0][0]
    r = F(1) / F(temperature)
    scaled = [float(F(F(a - row[0][1]) * r)) for _, a in row]
    weights = [math.exp(s) for s in scaled]
    top_k = p.get("top_k", 0)
    kept_by_k = len(row) if top_k <= 0 else min(top_k, len(row))
    total = sum(weights[:kept_by_k])
    kept, above = [], 0.0
    for rank in range(len(row)):
        near = lambda a, b: abs(a - b) < 1e-4 * max(abs(a), abs(b), 1e-12)
        limit = float(F(p.get("top_p", 1.0))) * total
        floor = float(F(p.get("min_p", 0.0)))
        if rank > 0 and p.get("top_p", 1.0) < 1 and near(above, limit):
            return None
        if scaled[rank] < 0 and floor > 0 and near(weights[rank], floor):
            return None
        passes = rank < kept_by_k
        passes = passes and (p.get("top_p", 1.0) >= 1 or above < limit)
        passes = passes and weights[rank] >= floor
        if rank == 0 or passes:
            kept.append(rank)
        above += weights[rank]
    values = sorted(
        ((scaled[rank] + gumbel(p["seed"], case["choice"], len(case["tokens"]), row[rank][0]),
          row[rank][0]) for rank in kept), reverse=True)
    if len(values) > 1 and values[0][0] - values[1][0] < 1e-4:
        return None
    return values[0][1]


def f32(x):
    return float(F(x))


def random_case(rng, name):
    size = rng.choice([1, 2, 5, 17, 40])
    tokens = [rng.randrange(size) for _ in range(rng.randrange(1, 30))]
    p = {"seed": rng.getrandbits(64), "temperature": f32(rng.choice([0.0, 0.3, 1.0, 1.0, 2.5]))}
    if rng.random() < 0.4:
        p["top_k"] = rng.choice([1, 2, 7, 1000])
    if rng.random() < 0.4:
        p["top_p"] = f32(rng.choice([0.0, 1e-7, 0.3, 0.9, 1.0]))
    if rng.random() < 0.3:
        p["min_p"] = f32(rng.choice([0.01, 0.2, 1.0]))
    if rng.random() < 0.4:
        p["repetition_penalty"] = f32(rng.choice([0.5, 1.2, 3.0]))
        p["repetition_window"] = rng.choice([0, 1, 5, 20])
    if rng.random() < 0.4:
        p["presence_penalty"] = f32(rng.choice([-1.0, 0.5, 4.0]))
        p["presence_window"] = rng.choice([0, 3])
    if rng.random() < 0.4:
        p["frequency_penalty"] = f32(rng.choice([-0.3, 0.4]))
        p["frequency_window"] = rng.choice([0, 4])
    if rng.random() < 0.3:
        p["logit_bias"] = [[token, f32(rng.uniform(-5, 5))]
                           for token in rng.sample(range(size), rng.randrange(1, size + 1))]
    if rng.random() < 0.2:
        p["allowed_ids"] = rng.sample(range(size), rng.randrange(1, size + 1))
    if rng.random() < 0.2:
        p["banned_ids"] = rng.sample(range(size), rng.randrange(1, size + 1))
    if rng.random() < 0.3:
        p["end_ids"] = rng.sample(range(size), 1)
        p["min_tokens"] = rng.randrange(0, 20)
    return {"name": name, "logits": [f32(rng.gauss(0, 3)) for _ in range(size)],
            "tokens": tokens, "prompt_length": rng.randrange(1, len(tokens) + 1),
            "choice": rng.randrange(4), "parameters": p}


def edge_cases():
    def case(name, logits, tokens=(0,), prompt_length=1, choice=0, **parameters):
        parameters.setdefault("seed", 7)
        return {"name": name, "logits": [f32(x) for x in logits], "tokens": list(tokens),
                "prompt_length": prompt_length, "choice": choice,
                "parameters": {k: f32(v) if isinstance(v, float) else v
                               for k, v in parameters.items()}}
    flat = [1.0] * 8
    yield case("greedy takes the lowest id of equal logits", [0.0, 2.0, 2.0, 1.0])
    yield case("temperature 0 ignores the seed", [0.0, 2.0, 1.0], seed=12345)
    yield case("top_k larger than the vocabulary", [0.5, 0.1, 0.4], temperature=1.0, top_k=1000)
    yield case("top_k -1 is off", [0.5, 0.1, 0.4], temperature=1.0, top_k=-1)
    yield case("top_k cuts ties by id", flat, temperature=1.0, top_k=3)
    yield case("top_p 0 is the best id", [0.0, 3.0, 2.9], temperature=5.0, top_p=0.0)
    yield case("top_p below fp32's step from 1 is the best id", [0.0, 3.0, 2.9], temperature=5.0,
               top_p=1e-10)
    yield case("top_p 1 is off", [0.0, -20.0, -20.0], temperature=50.0, top_p=1.0)
    yield case("top_p cuts ties by id", flat, temperature=1.0, top_p=0.3)
    yield case("top_p is relative to what top_k kept", [0.0, 0.0, 0.0, 0.0], temperature=1.0,
               top_k=2, top_p=0.6)
    yield case("min_p 1 keeps the ids equal to the best", [1.0, 3.0, 3.0, 2.0], temperature=1.0,
               min_p=1.0)
    yield case("every id banned", [1.0, 2.0], banned_ids=[0, 1])
    yield case("a ban of the best", [1.0, 2.0, 0.0], banned_ids=[1])
    yield case("one id allowed", [1.0, 2.0, 0.0], temperature=1.0, allowed_ids=[2])
    yield case("a bias moves the best", [1.0, 2.0], logit_bias=[[0, 5.0]])
    yield case("repetition divides positive logits", [2.0, 1.5], tokens=[0], repetition_penalty=2.0)
    yield case("repetition multiplies negative logits", [-1.0, -1.5], tokens=[0],
               repetition_penalty=2.0)
    yield case("repetition counts the prompt", [2.0, 1.5, 0.0], tokens=[0, 2, 2], prompt_length=3,
               repetition_penalty=2.0)
    yield case("presence does not count the prompt", [2.0, 1.5, 0.0], tokens=[0, 2, 2],
               prompt_length=3, presence_penalty=2.0)
    yield case("presence counts once", [2.0, 1.2, 0.0], tokens=[2, 0, 0, 0], presence_penalty=0.5)
    yield case("frequency counts every time", [2.0, 1.2, 0.0], tokens=[2, 0, 0, 0],
               frequency_penalty=0.5)
    yield case("a token that left the window counts no more", [2.0, 1.5, 0.0], tokens=[0, 2, 2],
               repetition_penalty=2.0, repetition_window=2)
    yield case("an end id waits for min_tokens", [1.0, 5.0], tokens=[0, 0, 0], end_ids=[1],
               min_tokens=3)
    yield case("an end id after min_tokens", [1.0, 5.0], tokens=[0, 0, 0, 0], end_ids=[1],
               min_tokens=3)
    yield case("a huge logit is clamped", [3e38, 3e38, 1.0], temperature=1.0,
               logit_bias=[[0, -10.0]])
    yield case("the smallest temperature", [11.06, 11.05, -40.0], temperature=1e-5)
    yield case("a vocabulary of one", [-7.0], temperature=1.0)


def main():
    rng = random.Random(20250101)
    cases = list(edge_cases())
    while len(cases) < 400:
        cases.append(random_case(rng, "random %d" % len(cases)))
    out = []
    for case in cases:
        token = decide(case)
        if token is None:
            if not case["name"].startswith("random"):
                sys.exit("too close to call: " + case["name"])
            continue
        case["token"] = token
        out.append(case)
    made_by = "make_vectors.py, python %s, numpy %s" % (sys.version.split()[0], numpy.__version__)
    lines = ",\n".join(json.dumps(case, separators=(",", ":")) for case in out)
    print('{"made_by":"%s","cases":[\n%s\n]}' % (made_by, lines))


main()
