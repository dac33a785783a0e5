"""The `openai` client against a running text tier: what its users send, and what they expect.

    python tests/e2e/openai_suite.py BASE_URL [MODEL]

BASE_URL ends with /v1. MODEL: its name as /v1/models lists it; default: the first one. The model
needs a chat template, and a context of 4,096 tokens. Run by openai_test, on a tiny model of drawn
weights: nothing here depends on what a model says. Fewer than 60 calls are a failure too.
"""

import asyncio
import json
import math
import sys
import threading
import time
import unittest

import openai

calls = 0


def count(request):
    global calls
    calls += 1


async def acount(request):
    count(request)


BASE_URL = sys.argv[1] if len(sys.argv) > 1 else ""
client = openai.OpenAI(
    base_url=BASE_URL,
    api_key="none",
    max_retries=0,
    timeout=120,
    http_client=openai.DefaultHttpxClient(event_hooks={"request": [count]}),
)
MODEL = sys.argv[2] if len(sys.argv) > 2 else None
CHAT = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Say something."}]
# So that answers have a length that is known.
ON = {"ignore_eos": True}


def aclient():
    return openai.AsyncOpenAI(
        base_url=BASE_URL,
        api_key="none",
        max_retries=0,
        timeout=120,
        http_client=openai.DefaultAsyncHttpxClient(event_hooks={"request": [acount]}),
    )


def chat(**more):
    more.setdefault("max_tokens", 12)
    extra = {**ON, **more.pop("extra_body", {})}
    return client.chat.completions.create(model=MODEL, messages=CHAT, extra_body=extra, **more)


def complete(prompt="Once upon a time", **more):
    more.setdefault("max_tokens", 12)
    extra = {**ON, **more.pop("extra_body", {})}
    return client.completions.create(model=MODEL, prompt=prompt, extra_body=extra, **more)


def chat_text(stream, index=0):
    return "".join(
        choice.delta.content or ""
        for chunk in stream
        for choice in chunk.choices
        if choice.index == index
    )


class Models(unittest.TestCase):
    def test_are_listed_and_can_be_asked_for_by_name(self):
        listed = client.models.list().data
        self.assertIn(MODEL, [model.id for model in listed])
        one = client.models.retrieve(MODEL)
        self.assertEqual((one.id, one.object), (MODEL, "model"))

    def test_one_that_is_not_there_is_a_404(self):
        with self.assertRaises(openai.NotFoundError) as caught:
            client.models.retrieve("no-such-model")
        self.assertEqual(caught.exception.code, "model_not_found")
        with self.assertRaises(openai.NotFoundError):
            client.completions.create(model="no-such-model", prompt="x")


class Chat(unittest.TestCase):
    def test_has_the_shape_that_the_client_reads(self):
        answer = chat(seed=1)
        self.assertEqual(answer.object, "chat.completion")
        self.assertTrue(answer.id.startswith("chatcmpl-"))
        self.assertLess(abs(answer.created - time.time()), 3600)
        self.assertEqual(answer.model, MODEL)
        self.assertTrue(answer.system_fingerprint)
        choice = answer.choices[0]
        self.assertEqual((choice.index, choice.finish_reason), (0, "length"))
        self.assertEqual(choice.message.role, "assistant")
        self.assertTrue(choice.message.content)
        self.assertEqual(answer.usage.completion_tokens, 12)
        self.assertEqual(
            answer.usage.total_tokens, answer.usage.prompt_tokens + answer.usage.completion_tokens
        )

    def test_content_may_be_parts(self):
        whole = chat(seed=3).choices[0].message.content
        parts = [
            CHAT[0],
            {
                "role": "user",
                "content": [{"type": "text", "text": "Say "}, {"type": "text", "text": "something."}],
            },
        ]
        answer = client.chat.completions.create(
            model=MODEL, messages=parts, max_tokens=12, seed=3, extra_body=ON
        )
        self.assertEqual(answer.choices[0].message.content, whole)

    def test_the_same_seed_is_the_same_answer_and_another_is_not(self):
        first = chat(seed=7, max_tokens=32).choices[0].message.content
        self.assertEqual(chat(seed=7, max_tokens=32).choices[0].message.content, first)
        self.assertNotEqual(chat(seed=8, max_tokens=32).choices[0].message.content, first)

    def test_a_seed_that_was_drawn_is_told_and_gives_the_answer_again(self):
        answer = chat(max_tokens=24)
        seed = answer.choices[0].model_extra["tandem"]["seed"]
        again = chat(max_tokens=24, extra_body={"seed": seed})
        self.assertEqual(again.choices[0].message.content, answer.choices[0].message.content)

    def test_temperature_0_needs_no_seed(self):
        texts = {chat(temperature=0).choices[0].message.content for _ in range(3)}
        self.assertEqual(len(texts), 1)

    def test_max_completion_tokens_is_max_tokens(self):
        answer = client.chat.completions.create(
            model=MODEL, messages=CHAT, max_completion_tokens=5, extra_body=ON
        )
        self.assertEqual(answer.usage.completion_tokens, 5)

    def test_without_a_limit_it_ends_by_itself_or_with_the_context(self):
        answer = client.chat.completions.create(model=MODEL, messages=CHAT, seed=5)
        self.assertIn(answer.choices[0].finish_reason, ("stop", "length"))

    def test_n_choices_differ_and_each_has_its_index(self):
        answer = chat(n=4, seed=11, max_tokens=24)
        self.assertEqual([choice.index for choice in answer.choices], [0, 1, 2, 3])
        self.assertEqual(len({choice.message.content for choice in answer.choices}), 4)
        self.assertEqual(answer.usage.completion_tokens, 4 * 24)
        # A choice's noise is its own: fewer choices are the first of many.
        alone = chat(n=1, seed=11, max_tokens=24)
        self.assertEqual(
            alone.choices[0].message.content, answer.choices[0].message.content
        )

    def test_logprobs_have_tokens_bytes_and_the_most_likely(self):
        answer = chat(logprobs=True, top_logprobs=5, seed=2)
        content = answer.choices[0].logprobs.content
        self.assertEqual(len(content), 12)
        joined = b"".join(bytes(token.bytes) for token in content)
        self.assertEqual(joined.decode("utf-8", "replace"), answer.choices[0].message.content)
        for token in content:
            self.assertLessEqual(token.logprob, 0)
            self.assertEqual(len(token.top_logprobs), 5)
            values = [top.logprob for top in token.top_logprobs]
            self.assertEqual(values, sorted(values, reverse=True))

    def test_logprobs_at_temperature_0_are_those_of_the_best_token(self):
        for token in chat(logprobs=True, top_logprobs=1, temperature=0).choices[0].logprobs.content:
            self.assertEqual(token.top_logprobs[0].logprob, token.logprob)

    def test_B045_logprobs_with_top_k_1_are_finite(self):
        answer = chat(logprobs=True, top_logprobs=20, extra_body={"top_k": 1})
        for token in answer.choices[0].logprobs.content:
            self.assertTrue(all(math.isfinite(top.logprob) for top in token.top_logprobs))

    def test_logit_bias_forces_a_token(self):
        answer = chat(logit_bias={"40": 1000}, temperature=1.0, extra_body={"return_token_ids": True})
        self.assertEqual(set(answer.choices[0].model_extra["token_ids"]), {40})

    def test_fields_that_only_other_servers_use_are_harmless(self):
        answer = chat(user="somebody", metadata={"a": "b"}, parallel_tool_calls=False, store=False)
        self.assertEqual(answer.usage.completion_tokens, 12)


class ChatStream(unittest.TestCase):
    def test_has_a_role_first_and_a_reason_last(self):
        chunks = list(chat(stream=True, seed=1))
        self.assertEqual({chunk.object for chunk in chunks}, {"chat.completion.chunk"})
        self.assertEqual(len({chunk.id for chunk in chunks}), 1)
        self.assertEqual(chunks[0].choices[0].delta.role, "assistant")
        self.assertEqual(chunks[-1].choices[0].finish_reason, "length")
        for chunk in chunks[:-1]:
            self.assertIsNone(chunk.choices[0].finish_reason)

    def test_is_the_text_of_the_whole_answer(self):
        for seed in range(4):
            whole = chat(seed=seed, max_tokens=48).choices[0].message.content
            self.assertEqual(chat_text(chat(seed=seed, max_tokens=48, stream=True)), whole)

    def test_has_the_logprobs_of_the_whole_answer(self):
        options = dict(seed=4, logprobs=True, top_logprobs=3, max_tokens=16)
        whole = chat(**options).choices[0].logprobs.content
        parts = [
            token
            for chunk in chat(stream=True, **options)
            for choice in chunk.choices
            if choice.logprobs
            for token in choice.logprobs.content
        ]
        self.assertEqual([t.model_dump() for t in parts], [t.model_dump() for t in whole])

    def test_has_the_usage_where_it_is_asked_for(self):
        chunks = list(chat(stream=True, stream_options={"include_usage": True}))
        self.assertEqual(chunks[-1].choices, [])
        self.assertEqual(chunks[-1].usage.completion_tokens, 12)
        self.assertTrue(all(chunk.usage is None for chunk in chunks[:-1]))
        self.assertTrue(all(chunk.usage is None for chunk in chat(stream=True)))

    def test_of_n_choices_is_each_whole(self):
        whole = chat(n=3, seed=6, max_tokens=20)
        chunks = list(chat(n=3, seed=6, max_tokens=20, stream=True))
        for index in range(3):
            self.assertEqual(chat_text(chunks, index), whole.choices[index].message.content)

    def test_can_be_left_in_the_middle_and_the_server_goes_on(self):
        stream = chat(stream=True, max_tokens=3000)
        for _, chunk in zip(range(3), stream):
            self.assertTrue(chunk.choices)
        stream.close()
        self.assertEqual(chat().usage.completion_tokens, 12)

    def test_ten_at_once_have_each_their_own_text(self):
        alone = [chat(seed=seed, max_tokens=40).choices[0].message.content for seed in range(10)]
        texts = [""] * 10

        def run(seed):
            texts[seed] = chat_text(chat(seed=seed, max_tokens=40, stream=True))

        threads = [threading.Thread(target=run, args=(seed,)) for seed in range(10)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(texts, alone)


class Completions(unittest.TestCase):
    def test_has_the_shape_that_the_client_reads(self):
        answer = complete()
        self.assertEqual(answer.object, "text_completion")
        self.assertTrue(answer.id.startswith("cmpl-"))
        self.assertEqual(answer.choices[0].finish_reason, "length")
        self.assertEqual(answer.usage.completion_tokens, 12)

    def test_default_is_16_tokens(self):
        answer = client.completions.create(model=MODEL, prompt="Once", extra_body=ON)
        self.assertEqual(answer.usage.completion_tokens, 16)

    def test_several_prompts_are_answered_in_order(self):
        prompts = ["Once upon", "A time", "There was"]
        answer = complete(prompts, n=2, seed=9)
        self.assertEqual([choice.index for choice in answer.choices], list(range(6)))
        for i, prompt in enumerate(prompts):
            alone = complete(prompt, n=2, seed=9)
            for c in range(2):
                self.assertEqual(answer.choices[2 * i + c].text, alone.choices[c].text)

    def test_token_ids_are_a_prompt_too(self):
        ids = tokenize("Once upon a time")
        whole = complete(seed=3)
        self.assertEqual(complete(ids, seed=3).choices[0].text, whole.choices[0].text)
        both = complete([ids, ids], seed=3)
        self.assertEqual([c.text for c in both.choices], [whole.choices[0].text] * 2)

    def test_echo_begins_with_the_prompt(self):
        plain = complete("Hello there", seed=1).choices[0].text
        self.assertEqual(complete("Hello there", seed=1, echo=True).choices[0].text, "Hello there" + plain)

    def test_echo_with_logprobs_is_what_an_evaluation_reads(self):
        answer = complete("Hello there", echo=True, logprobs=2, max_tokens=1, temperature=0)
        logprobs = answer.choices[0].logprobs
        self.assertIsNone(logprobs.token_logprobs[0])
        self.assertTrue(all(value <= 0 for value in logprobs.token_logprobs[1:]))
        self.assertEqual(len(logprobs.tokens), len(logprobs.token_logprobs))
        self.assertEqual(len(logprobs.tokens), len(logprobs.top_logprobs))
        self.assertEqual(len(logprobs.tokens), len(logprobs.text_offset))
        self.assertEqual("".join(logprobs.tokens), answer.choices[0].text)
        for offset, token in zip(logprobs.text_offset, logprobs.tokens):
            self.assertEqual(answer.choices[0].text[offset : offset + len(token)], token)

    def test_echo_without_output(self):
        answer = complete("Hello there", echo=True, logprobs=1, max_tokens=0)
        self.assertEqual(answer.choices[0].text, "Hello there")
        self.assertEqual(answer.usage.completion_tokens, 0)

    def test_a_stream_is_the_whole_answer(self):
        for seed in range(3):
            whole = complete(seed=seed, max_tokens=40).choices[0].text
            parts = [chunk.choices[0].text for chunk in complete(seed=seed, max_tokens=40, stream=True)]
            self.assertGreater(len(parts), 1)
            self.assertEqual("".join(parts), whole)

    def test_a_stream_of_several_prompts_with_logprobs(self):
        options = dict(logprobs=1, seed=2, max_tokens=10)
        whole = complete(["One", "Two"], **options)
        chunks = list(complete(["One", "Two"], stream=True, **options))
        for index in range(2):
            mine = [c for chunk in chunks for c in chunk.choices if c.index == index]
            self.assertEqual("".join(c.text for c in mine), whole.choices[index].text)
            tokens = [t for c in mine if c.logprobs for t in c.logprobs.tokens]
            self.assertEqual(tokens, whole.choices[index].logprobs.tokens)

    def test_cached_tokens_are_counted(self):
        ids = [7 + i % 200 for i in range(300)]
        complete(ids, max_tokens=1)
        again = complete(ids, max_tokens=1)
        self.assertGreaterEqual(again.usage.prompt_tokens_details.cached_tokens, 192)


class Stops(unittest.TestCase):
    def setUp(self):
        self.text = complete(seed=21, max_tokens=64).choices[0].text

    def test_B015_a_stop_string_is_never_seen_wherever_chunks_end(self):
        for begin, length in ((5, 1), (9, 3), (12, 7), (20, 11)):
            stop = self.text[begin : begin + length]
            want = self.text[: self.text.index(stop)]
            whole = complete(seed=21, max_tokens=64, stop=stop).choices[0]
            self.assertEqual((whole.text, whole.finish_reason), (want, "stop"))
            chunks = list(complete(seed=21, max_tokens=64, stop=[stop], stream=True))
            self.assertEqual("".join(c.choices[0].text for c in chunks), want)

    def test_B019_a_tail_that_was_held_back_comes_with_the_last_token(self):
        stop = self.text[-2:] + "\x01never"
        parts = complete(seed=21, max_tokens=64, stop=stop, stream=True)
        self.assertEqual("".join(chunk.choices[0].text for chunk in parts), self.text)

    def test_B021_which_stop_it_was_is_told(self):
        stop = self.text[10:14]
        answer = complete(seed=21, max_tokens=64, stop=["\x01never", stop])
        self.assertEqual(answer.choices[0].model_extra["stop_reason"], stop)

    def test_it_may_stay_in_the_text(self):
        stop = self.text[10:14]
        answer = complete(
            seed=21, max_tokens=64, stop=stop, extra_body={"include_stop_str_in_output": True}
        )
        self.assertEqual(answer.choices[0].text, self.text[: self.text.index(stop) + len(stop)])

    def test_a_stop_token_ends_the_answer_too(self):
        ids = complete(seed=21, max_tokens=64, extra_body={"return_token_ids": True})
        ids = ids.choices[0].model_extra["token_ids"]
        answer = complete(seed=21, max_tokens=64, extra_body={"stop_token_ids": [ids[6]]})
        self.assertEqual(answer.choices[0].finish_reason, "stop")
        self.assertEqual(answer.usage.completion_tokens, ids.index(ids[6]) + 1)

    def test_an_empty_stop_is_refused(self):
        with self.assertRaises(openai.BadRequestError) as caught:
            complete(stop="")
        self.assertIn("stop", caught.exception.param)


class Errors(unittest.TestCase):
    def refused(self, param, function, **arguments):
        with self.assertRaises(openai.BadRequestError) as caught:
            function(**arguments)
        error = caught.exception
        self.assertEqual(error.type, "invalid_request_error")
        self.assertEqual(error.param, param)
        self.assertIn(param, error.body["message"])

    def test_name_the_field(self):
        self.refused("temperature", chat, temperature=-1)
        self.refused("top_p", chat, top_p=1.5)
        self.refused("top_logprobs", chat, logprobs=True, top_logprobs=21)
        self.refused("max_tokens", chat, max_tokens=100_000_000)  # B129
        self.refused("n", chat, n=512)  # B127
        self.refused("logit_bias", chat, logit_bias={"999999999": 1})  # B047
        self.refused("messages", client.chat.completions.create, model=MODEL, messages=[])
        self.refused("tools", chat, tools=[{"type": "function", "function": {"name": "f"}}])
        self.refused("min_tokens", complete, extra_body={"min_tokens": -1})
        self.refused("stop", complete, stop=["x"] * 17)

    def test_an_unknown_field_is_refused_by_name(self):
        self.refused("no_such_field", chat, extra_body={"no_such_field": 1})

    def test_of_a_stream_come_before_it_begins(self):
        self.refused("temperature", chat, temperature=-1, stream=True)

    def test_what_is_not_json_is_a_400(self):
        with self.assertRaises(openai.BadRequestError):
            client.post("/completions", cast_to=object, body={}, options={"extra_json": {"prompt": 5}})


class Async(unittest.TestCase):
    def test_many_at_once(self):
        async def run():
            async with aclient() as client:
                one = lambda seed: client.completions.create(
                    model=MODEL, prompt="Go", max_tokens=20, seed=seed, extra_body=ON
                )
                alone = [(await one(seed)).choices[0].text for seed in range(8)]
                together = await asyncio.gather(*(one(seed) for seed in range(8)))
                self.assertEqual([answer.choices[0].text for answer in together], alone)

        asyncio.run(run())

    def test_a_stream(self):
        async def run():
            async with aclient() as client:
                stream = await client.chat.completions.create(
                    model=MODEL, messages=CHAT, max_tokens=20, seed=1, stream=True, extra_body=ON
                )
                text = ""
                async for chunk in stream:
                    text += chunk.choices[0].delta.content or ""
                self.assertEqual(text, chat(seed=1, max_tokens=20).choices[0].message.content)

        asyncio.run(run())

    def test_B117_a_call_that_is_cancelled_is_gone_from_the_server(self):
        async def run():
            async with aclient() as client:
                long = asyncio.create_task(
                    client.completions.create(
                        model=MODEL, prompt="Go", max_tokens=3500, extra_body=ON
                    )
                )
                await asyncio.sleep(0.05)
                long.cancel()
                with self.assertRaises(asyncio.CancelledError):
                    await long

        asyncio.run(run())
        self.assertEqual(complete().usage.completion_tokens, 12)

    def test_a_stream_that_is_left(self):
        async def run():
            async with aclient() as client:
                stream = await client.completions.create(
                    model=MODEL, prompt="Go", max_tokens=3500, stream=True, extra_body=ON
                )
                async for _ in stream:
                    break
                await stream.close()

        asyncio.run(run())
        self.assertEqual(complete().usage.completion_tokens, 12)


def tokenize(text):
    answer = client.post(
        BASE_URL.removesuffix("/v1") + "/tokenize",
        cast_to=object,
        body={"model": MODEL, "prompt": text},
    )
    return answer["tokens"]


class Others(unittest.TestCase):
    def test_tokenize_and_back(self):
        text = "Hello, wörld! 你好"
        ids = tokenize(text)
        back = client.post(
            BASE_URL.removesuffix("/v1") + "/detokenize",
            cast_to=object,
            body={"model": MODEL, "tokens": ids},
        )
        self.assertEqual(back["prompt"], text)

    def test_with_raw_response_has_the_request_id(self):
        answer = client.chat.completions.with_raw_response.create(
            model=MODEL, messages=CHAT, max_tokens=2, extra_headers={"X-Request-Id": "my-request-7"}
        )
        self.assertEqual(answer.headers["x-request-id"], "my-request-7")
        self.assertEqual(answer.parse().usage.completion_tokens, 2)


class ZCalls(unittest.TestCase):
    """Runs last."""

    def test_there_were_at_least_60(self):
        print(f"{calls} calls")
        self.assertGreaterEqual(calls, 60)


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    if MODEL is None:
        MODEL = client.models.list().data[0].id
    unittest.main(argv=sys.argv[:1], verbosity=1)
