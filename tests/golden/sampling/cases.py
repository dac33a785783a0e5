"""The rows, histories and parameters of vectors.json: every rule and edge by name, then random
ones.

A case is a dictionary: name, logits, history as [id, how often in a row], prompt_length, choice,
undefined_ids, and the parameters that differ from the defaults.
"""

import math

import numpy as np


def f32(x):
    return float(np.float32(x))


def make(
    name, logits, history=((0, 1),), prompt_length=1, choice=0, undefined_ids=(), **parameters
):
    parameters.setdefault("seed", 7)
    return dict(
        name=name,
        logits=list(logits),
        history=[list(run) for run in history],
        prompt_length=prompt_length,
        choice=choice,
        undefined_ids=list(undefined_ids),
        parameters={k: f32(v) if isinstance(v, float) else v for k, v in parameters.items()},
    )


def runs(tokens):
    return [(token, 1) for token in tokens]


def row_and_draw_cases():
    row = [f32(x) for x in (1.9, -0.3, 0.4, 4.1, -2.2, 3.9, 0.0, 1.1, -5.0, 2.8, 0.7, -1.4, 3.2)]
    flat = [1.5] * 8
    best = 3
    yield make("greedy takes the lowest id of equal logits", [0.0, 2.0, 2.0, 1.0])
    yield make("greedy: -0 equals 0", [-0.0, 0.0, -1.0])
    yield make("greedy ignores the seed", row, seed=12345)
    yield make("greedy: list sizes of 1 decide", row, num_top=1, num_perturbed=1)
    yield make("a vocabulary of one id", [-7.0], temperature=1.0)
    yield make("a draw", row, temperature=1.0)
    yield make("the smallest temperature", [11.06, 11.05, -40.0], temperature=1e-5)
    yield make("the largest temperature", row, temperature=100.0)
    yield make("a flat row", flat, temperature=1.0)
    yield make("zeros of both signs are equal", [-0.0, 0.0, -0.0, 0.0], temperature=1.0)
    yield make("subnormal logits", [1e-45, -1e-45, 1e-40, 0.0], temperature=1e-5)
    for choice in range(4):
        yield make(
            "choice %d of one request" % choice, row, temperature=1.3, seed=99, choice=choice
        )
    yield make("the largest choice", row, temperature=1.3, seed=99, choice=2**32 - 1)
    for seed in (0, 2**32 - 1, 2**32, 2**32 + 7, 2**63 + 5, 2**64 - 1):
        yield make("seed %d" % seed, row, temperature=1.5, seed=seed)
    for length in (2, 65535, 65536, 65537, 70001, 131072):
        yield make("position %d" % length, row, history=[(5, length - 1), (6, 1)], temperature=1.5)
    yield make("NaN anywhere ends the request", row[:4] + [math.nan] + row[5:], temperature=1.0)
    yield make(
        "minus infinity, even at a banned id", row[:9] + [-math.inf] + row[10:], banned_ids=[9]
    )
    yield make("the lowest id that is not finite is named", [0.0, math.inf, math.nan])
    yield make(
        "a huge logit is clamped", [3e38, 2e38, 1.0], temperature=1.0, logit_bias=[[0, -10.0]]
    )
    yield make("a huge negative logit is clamped", [-3e38, -2e38], temperature=1.0)
    yield make("every id banned", [1.0, 2.0], banned_ids=[0, 1])
    yield make("allowed and banned leave nothing", row, allowed_ids=[2, 3], banned_ids=[2, 3, 4])
    yield make("the best id banned", row, banned_ids=[best])
    yield make("one id allowed", row, temperature=1.0, allowed_ids=[6])
    yield make(
        "banned wins over allowed", row, temperature=1.0, allowed_ids=[3, 5, 9], banned_ids=[3]
    )
    yield make(
        "ids that the tokenizer does not define", row, temperature=1.0, undefined_ids=[3, 5, 9]
    )
    yield make(
        "an end id waits for min_tokens", row, history=runs([0, 1, 2]), end_ids=[best], min_tokens=3
    )
    yield make(
        "an end id after min_tokens", row, history=runs([0, 1, 2]), end_ids=[best], min_tokens=2
    )
    yield make("end ids alone, before min_tokens", [1.0, 2.0], end_ids=[0, 1], min_tokens=1)


def cut_cases():
    row = [f32(x) for x in (1.9, -0.3, 0.4, 4.1, -2.2, 3.9, 0.0, 1.1, -5.0, 2.8, 0.7, -1.4, 3.2)]
    flat = [1.5] * 8
    yield make("top_k 1", row, temperature=2.0, top_k=1)
    yield make("top_k 3", row, temperature=2.0, top_k=3)
    yield make("top_k larger than the vocabulary", row, temperature=2.0, top_k=1000)
    yield make("top_k larger than the row", row, temperature=2.0, top_k=9, allowed_ids=[1, 2, 6])
    yield make("top_k -1 is off", row, temperature=2.0, top_k=-1)
    yield make("top_k, a tie at the cut goes by id", flat, temperature=1.0, top_k=3)
    yield make("top_p 0 is the best id", row, temperature=5.0, top_p=0.0)
    yield make("top_p 2^-33 is rounded up to 2^-32", row, temperature=5.0, top_p=2.0**-33)
    yield make("top_p below 2^-33 is 0", row, temperature=5.0, top_p=1e-10)
    yield make("top_p 1 is off", [0.0, -20.0, -20.0], temperature=50.0, top_p=1.0)
    yield make(
        "top_p just below 1 leaves out weights of 0",
        [0.0, -40.0, -40.0],
        temperature=1.0,
        top_p=1 - 2.0**-24,
    )
    yield make("top_p 0.5", row, temperature=2.0, top_p=0.5)
    yield make("top_p, a tie at the cut goes by id", flat, temperature=1.0, top_p=0.3)
    yield make("top_p, the mass above is exactly the share: out", flat, temperature=1.0, top_p=0.5)
    yield make("top_p is relative to what top_k kept", flat, temperature=1.0, top_k=4, top_p=0.5)
    yield make(
        "min_p 1 keeps the ids equal to the best", [2.0, 3.0, 3.0, 1.0], temperature=1.0, min_p=1.0
    )
    yield make("min_p 0 is off", row, temperature=1.0, min_p=0.0)
    yield make("min_p 0.1", row, temperature=1.0, min_p=0.1)
    yield make("min_p at exactly the weight keeps", [0.0, 0.0, -1.0], temperature=1.0, min_p=1.0)
    yield make("min_p below 2^-33 is off", [0.0, -26.0], temperature=100.0, min_p=1e-10)
    yield make("all three cuts", row, temperature=1.3, top_k=9, top_p=0.9, min_p=0.01)
    wide = [f32(0.01 * (i % 7)) for i in range(48)]
    yield make(
        "lists that do not decide",
        wide,
        temperature=1.0,
        top_k=5,
        num_top=3,
        num_perturbed=1,
        seed=3,
    )
    yield make(
        "lists that do not decide, top_p",
        wide,
        temperature=1.0,
        top_p=0.1,
        num_top=3,
        num_perturbed=2,
        seed=5,
    )
    yield make(
        "lists that do not decide, min_p",
        wide,
        temperature=1.0,
        min_p=0.995,
        num_top=3,
        num_perturbed=1,
        seed=4,
    )
    yield make(
        "the top list decides where the kept set ends inside",
        wide,
        temperature=1.0,
        top_k=5,
        num_top=5,
        num_perturbed=1,
        seed=3,
    )
    yield make(
        "the kept set ends with the top list, by top_p",
        flat,
        temperature=1.0,
        top_p=0.5,
        num_top=4,
        num_perturbed=1,
        seed=3,
    )
    yield make(
        "lists larger than the row", row, temperature=1.0, top_k=4, num_top=1024, num_perturbed=64
    )
    yield make(
        "raw lists",
        row,
        history=runs([3, 5]),
        temperature=1.0,
        repetition_penalty=2.0,
        banned_ids=[12],
        want_raw=True,
        num_raw_top=5,
        report_ids=[12, 0, 8],
    )
    yield make(
        "raw lists of a tiny vocabulary",
        [1.0, 1.0],
        temperature=1.0,
        want_raw=True,
        num_raw_top=20,
        report_ids=[1],
    )
    yield make(
        "raw ranks go by raw logits, ties by id",
        flat,
        history=runs([0, 1]),
        temperature=1.0,
        presence_penalty=1.0,
        want_raw=True,
        num_raw_top=3,
    )


def edit_cases():
    row = [f32(x) for x in (1.9, -0.3, 0.4, 4.1, -2.2, 3.9, 0.0, 1.1, -5.0, 2.8, 0.7, -1.4, 3.2)]
    history = runs([1, 3, 3, 5, 3, 8, 5, 5, 12, 1])
    yield make("a bias moves the best", [1.0, 2.0], logit_bias=[[0, 5.0]])
    yield make("the largest biases", row, temperature=1.0, logit_bias=[[2, 1e4], [5, -1e4]])
    yield make(
        "a bias of 0 changes nothing, not even the sign of a zero",
        [-0.0, -0.0],
        logit_bias=[[0, 0.0]],
    )
    yield make("repetition divides positive logits", [2.0, 1.5], repetition_penalty=2.0)
    yield make("repetition multiplies negative logits", [-1.0, -1.5], repetition_penalty=2.0)
    yield make(
        "repetition counts the prompt",
        row,
        history=history,
        prompt_length=10,
        repetition_penalty=1.5,
    )
    yield make("repetition counts once", [2.0, 1.2], history=[(0, 5)], repetition_penalty=1.5)
    yield make(
        "repetition below 1 rewards", row, history=history, prompt_length=4, repetition_penalty=0.5
    )
    yield make(
        "repetition, the last 2 tokens",
        row,
        history=history,
        prompt_length=4,
        repetition_penalty=1.3,
        repetition_window=2,
    )
    yield make(
        "repetition, a window longer than the history",
        row,
        history=history,
        prompt_length=4,
        repetition_penalty=1.3,
        repetition_window=1000,
    )
    yield make(
        "presence does not count the prompt",
        [2.0, 1.5, 0.0],
        history=runs([0, 2, 2]),
        prompt_length=3,
        presence_penalty=2.0,
    )
    yield make(
        "presence counts once", [2.0, 1.2, 0.0], history=runs([2, 0, 0, 0]), presence_penalty=0.5
    )
    yield make(
        "presence, the last 3 tokens",
        row,
        history=history,
        prompt_length=4,
        presence_penalty=2.5,
        presence_window=3,
    )
    yield make(
        "presence, a window that reaches into the prompt",
        row,
        history=history,
        prompt_length=8,
        presence_penalty=2.5,
        presence_window=5,
    )
    yield make(
        "frequency counts every time",
        [2.0, 1.2, 0.0],
        history=runs([2, 0, 0, 0]),
        frequency_penalty=0.5,
    )
    yield make(
        "frequency: penalty times count is rounded before it is subtracted",
        [1.0, 0.5],
        history=[(1, 1), (0, 7)],
        frequency_penalty=0.1,
    )
    yield make(
        "frequency, the last 4 tokens",
        row,
        history=history,
        prompt_length=4,
        frequency_penalty=0.7,
        frequency_window=4,
    )
    yield make(
        "frequency below 0 rewards", row, history=history, prompt_length=1, frequency_penalty=-0.8
    )
    yield make(
        "a long history",
        row,
        history=[(3, 40000), (5, 30000), (9, 2)],
        prompt_length=39000,
        temperature=0.9,
        repetition_penalty=1.1,
        frequency_penalty=1e-4,
        presence_window=3,
        presence_penalty=0.5,
    )
    yield make(
        "every edit and every cut",
        row,
        history=history,
        prompt_length=4,
        choice=2,
        temperature=0.8,
        seed=2**40 + 99,
        top_k=6,
        top_p=0.95,
        min_p=0.001,
        logit_bias=[[1, 2.5]],
        repetition_penalty=1.1,
        presence_penalty=0.2,
        frequency_penalty=0.1,
        repetition_window=20,
    )


def random_case(rng, name):
    size = rng.choice([1, 2, 5, 12, 30])
    coarse = rng.random() < 0.3
    logits = [f32(round(rng.gauss(0, 3)) if coarse else rng.gauss(0, 3)) for _ in range(size)]
    tokens = [rng.randrange(size) for _ in range(rng.randrange(1, 30))]
    p = dict(seed=rng.getrandbits(64), temperature=rng.choice([0.0, 0.3, 1.0, 1.0, 2.5]))
    maybe = lambda chance, **values: p.update(values) if rng.random() < chance else None
    maybe(0.4, top_k=rng.choice([1, 2, 7, 1000]))
    maybe(0.4, top_p=rng.choice([0.0, 1e-7, 0.3, 0.9, 1.0]))
    maybe(0.3, min_p=rng.choice([0.01, 0.2, 1.0]))
    maybe(
        0.4,
        repetition_penalty=rng.choice([0.5, 1.2, 3.0]),
        repetition_window=rng.choice([0, 1, 5, 20]),
    )
    maybe(0.4, presence_penalty=rng.choice([-1.0, 0.5, 4.0]), presence_window=rng.choice([0, 3]))
    maybe(0.4, frequency_penalty=rng.choice([-0.3, 0.4]), frequency_window=rng.choice([0, 4]))
    ids = lambda: rng.sample(range(size), rng.randrange(1, size + 1))
    maybe(0.3, logit_bias=[[i, f32(rng.uniform(-5, 5))] for i in ids()])
    maybe(0.2, allowed_ids=ids())
    maybe(0.2, banned_ids=ids())
    maybe(0.3, end_ids=ids()[:1], min_tokens=rng.randrange(0, 20))
    maybe(0.5, num_top=rng.randrange(1, 5), num_perturbed=rng.randrange(1, 4))
    maybe(0.2, want_raw=True, num_raw_top=rng.randrange(0, 6), report_ids=ids()[:3])
    return make(
        name,
        logits,
        history=runs(tokens),
        prompt_length=rng.randrange(1, len(tokens) + 1),
        choice=rng.randrange(4),
        undefined_ids=ids()[:2] if rng.random() < 0.1 else (),
        **p
    )


def all_cases(rng):
    """The named cases, then 150 random ones of a random.Random."""
    cases = [*row_and_draw_cases(), *cut_cases(), *edit_cases()]
    assert len({case["name"] for case in cases}) == len(cases)
    return cases + [random_case(rng, "random %d" % i) for i in range(150)]
