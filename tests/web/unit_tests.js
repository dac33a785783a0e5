// Tests of the playground's functions that touch no page. Run by unit_test.py as the body of a
// function in a page that may import the modules; its argument takes {failures, words, curl, python}.
const done = arguments[arguments.length - 1];

(async () => {
  const load = (name) => import(`/playground/${name}.js`);
  const {SseParser} = await load('sse');
  const {readChunk, rankOf, TokenTexts} = await load('chunks');
  const {bodyJson, curlCommand, pythonProgram, shellQuote} = await load('snippets');
  const {checkNumber, checkSeed, checkStops, initialParameters, PARAMETERS, requestBody} =
      await load('parameters');
  const {milliseconds, percent, surprise, visible} = await load('format');
  const {describeFailure} = await load('api');
  const {describeNumbers, Numbers} = await load('numbers');
  const {renderMarkdown} = await load('markdown');

  const failures = [];
  let test = '';
  const same = (got, wanted, what) => {
    const [a, b] = [JSON.stringify(got), JSON.stringify(wanted)];
    if (a !== b) failures.push(`${test}: ${what}: ${a}, expected ${b}`);
  };
  const bytes = (text) => new TextEncoder().encode(text);

  const tests = {
    'events are the same wherever the bytes are cut'() {
      const stream = bytes(': hello\r\ndata: {"a":"é🦊"}\r\n\r\nevent: x\ndata:1\ndata: 2\n\ndata\n\ndata: 3\r\ndata: 4\r\n\r\n' +
                           'id: 7\r\rdata:  two spaces\r\rdata: [DONE]\n\ndata: unfinished\n');
      const wanted = ['{"a":"é🦊"}', '1\n2', '', '3\n4', ' two spaces', '[DONE]'];
      for (let first = 0; first <= stream.length; ++first) {
        const parser = new SseParser();
        const got = [...parser.push(stream.slice(0, first)), ...parser.push(stream.slice(first))];
        same(got, wanted, `cut at ${first}`);
      }
      for (const size of [1, 2, 3, 5, 7]) {
        const parser = new SseParser();
        const got = [];
        for (let i = 0; i < stream.length; i += size) got.push(...parser.push(stream.slice(i, i + size)));
        same(got, wanted, `parts of ${size}`);
      }
    },

    'a chunk of a chat has text, tokens and their details'() {
      const chunk = readChunk(JSON.stringify({choices: [{
        delta: {content: 'é'}, finish_reason: null,
        logprobs: {content: [{token: 'é', bytes: [195, 169], logprob: -0.5, top_logprobs: [
          {token: 'a', bytes: [97], logprob: -0.1}, {token: 'é', bytes: [195, 169], logprob: -0.5}]}]},
        tandem: {tokens: [{decided: 'lists', ahead: true, worker: 1, us: 1234}]}}]}));
      same([chunk.text, chunk.count, chunk.finish, chunk.error], ['é', 1, null, null], 'chunk');
      same([...chunk.tokens[0].bytes], [195, 169], 'bytes');
      same(rankOf(chunk.tokens[0]), 2, 'rank');
      same(chunk.tokens[0].detail, {decided: 'lists', ahead: true, worker: 1, us: 1234}, 'detail');
    },

    'a chunk of a completion has its candidates in order'() {
      const chunk = readChunk('{"choices":[{"text":" x","logprobs":{"tokens":[" x"],' +
          '"token_logprobs":[-2],"top_logprobs":[{"b":-1,"a":-0.5}],"text_offset":[0]}}]}');
      same(chunk.tokens[0].top.map(({text}) => text), ['a', 'b'], 'order');
      same(rankOf(chunk.tokens[0]), null, 'rank of one that is not listed');
      same(chunk.tokens[0].detail, null, 'detail');
    },

    'without logprobs chunks are counted'() {
      same(readChunk('{"choices":[{"delta":{"content":"x"}}]}').count, 1, 'with text');
      same(readChunk('{"choices":[{"delta":{"role":"assistant","content":""}}]}').count, 0, 'without');
      same(readChunk('{"choices":[],"usage":{"prompt_tokens":3}}').usage, {prompt_tokens: 3}, 'usage');
    },

    'a seed keeps its 64 bits, and text is not taken for one'() {
      const seed = '18446744073709551615';
      same(readChunk(`{"tandem":{"seed":"${seed}"},"choices":[]}`).seed, seed, 'in quotes');
      same(readChunk(`{"tandem":{"seed": ${seed}},"choices":[]}`).seed, seed, 'a number');
      const text = JSON.stringify({choices: [{delta: {content: ' seed: 1, {"seed":1}'}}]});
      same(readChunk(text).seed, null, 'in the text');
    },

    'characters that are cut between tokens are shown once'() {
      const texts = new TokenTexts();
      const shown = [[240, 159], [166, 138, 33], [195], [169]].map((part) =>
        texts.next({bytes: Uint8Array.from(part)}));
      same(shown, ['', '🦊!', '', 'é'], 'texts');
    },

    'a request has what is asked for and no defaults'() {
      const values = {...initialParameters(), temperature: 1, top_p: 1, candidates: 0};
      same(requestBody({model: 'm', input: {prompt: 'p'}, values, stops: []}),
           {model: 'm', prompt: 'p', max_tokens: 512, stream: true, stream_options: {include_usage: true}},
           'defaults');
      const chat = requestBody({model: '', input: {messages: []}, stops: ['\n'],
                                values: {...values, top_k: 3, candidates: 4}});
      same([chat.model, chat.top_k, chat.stop, chat.logprobs, chat.top_logprobs, chat.tandem],
           [undefined, 3, ['\n'], true, 4, {token_details: true}], 'chat');
      const completion = requestBody({model: '', input: {prompt: ''}, stops: [],
                                      values: {...values, candidates: 4}});
      same([completion.logprobs, completion.top_logprobs], [4, undefined], 'completion');
    },

    'a seed goes into the body digit by digit'() {
      const seed = '18446744073709551615';
      same(bodyJson({a: 1}, ''), '{"a":1}', 'none');
      same(bodyJson({a: 1}, seed), `{"a":1,"seed":${seed}}`, 'short');
      same(bodyJson({a: [1]}, '7', 2), '{\n  "a": [\n    1\n  ],\n  "seed": 7\n}', 'indented');
    },

    'numbers out of their range are refused in words'() {
      const by = (key) => PARAMETERS.find((parameter) => parameter.key === key);
      same(checkNumber(by('temperature'), '0'), {value: 0}, 'least');
      same(checkNumber(by('temperature'), '100'), {value: 100}, 'beyond the slider');
      same(checkNumber(by('top_p'), '1.01'), {error: 'Top p is 1.01: 0 to 1'}, 'too much');
      same(checkNumber(by('top_k'), '1.5'), {error: 'Top k has to be a whole number'}, 'not whole');
      for (const text of ['', ' ', 'x', '1e999', 'NaN']) {
        same(checkNumber(by('min_p'), text), {error: 'Min p has to be a number'}, text);
      }
      same(checkSeed(' 18446744073709551615 '), {value: '18446744073709551615'}, 'largest seed');
      same(checkSeed(''), {value: ''}, 'no seed');
      for (const text of ['18446744073709551616', '-1', '1.5', 'x']) {
        same(checkSeed(text).value, undefined, `seed ${text}`);
      }
      same(checkStops('a\n\\n\n\\\\n b'), {value: ['a', '\n', '\\n b']}, 'stops');
      same(checkStops(Array(17).fill('x').join('\n')), {error: '17 stop strings: at most 16'}, 'many');
      same(checkStops('é'.repeat(129)).value, undefined, 'long');
    },

    'numbers and tokens are short and true'() {
      same([0.5, 0.0404, 0.00001, 0, 0.99999, 1].map(percent),
           ['50.0 %', '4.04 %', '< 0.01 %', '0 %', '> 99.9 %', '100 %'], 'percent');
      same([0.42, 12.4, 1234, 65432].map(milliseconds), ['0.4 ms', '12 ms', '1.23 s', '65.4 s'], 'time');
      same([1, 0.7, 0.4, 0.2, 0.1, 0.01].map(surprise), [0, 1, 2, 3, 4, 5], 'surprise');
      same(visible(' a\n\u202e\u0000é'), '␣a↵U+202EU+0000é', 'visible');
    },

    'failures are told in words'() {
      same(describeFailure(429, {message: 'full'}, '2'),
           'The server has all the work that it takes now (429): full. Try again in 2 s.', '429');
      same(describeFailure(503, null, null), 'No worker is there to answer (503).', '503');
      same(describeFailure(400, {message: 'top_p is 2.'}, 'x'),
           'The server refuses this request (400): top_p is 2.', '400');
    },

    'the rate leaves out the reading of the prompt'() {
      const numbers = new Numbers(0);
      numbers.add({count: 1}, 900);
      same(numbers.perSecond, null, 'of one token');
      for (let i = 1; i <= 10; ++i) numbers.add({count: 1}, 900 + 100 * i);
      same(numbers.perSecond, 10, 'rate');
      const shown = Object.fromEntries(describeNumbers(numbers).map(({name, value}) => [name, value]));
      same(shown, {rate: '10.0', first: '900 ms', output: '11'}, 'shown');
    },

    'Markdown becomes nodes, and never HTML'() {
      const box = document.createElement('div');
      box.append(renderMarkdown('**b** <i>x</i> `c<b>`\n\n- one\n- two\n\n```js\nif (a < b) {}\n```\n3. three'));
      same([...box.children].map(({tagName}) => tagName), ['P', 'UL', 'PRE', 'OL'], 'blocks');
      same([...box.querySelectorAll('*')].map(({tagName}) => tagName).sort(),
           ['CODE', 'LI', 'LI', 'LI', 'OL', 'P', 'PRE', 'STRONG', 'UL'], 'nodes');
      same(box.querySelector('p').textContent, 'b <i>x</i> c<b>', 'text');
      same(box.querySelector('pre').textContent, 'if (a < b) {}', 'code');
      same(box.querySelector('ol').start, 3, 'number');
      const open = document.createElement('div');
      open.append(renderMarkdown('```\nnever closed **x**'));
      same(open.querySelector('pre').textContent, 'never closed **x**', 'an open fence');
    },
  };
  for (const [name, body] of Object.entries(tests)) {
    test = name;
    try {
      await body();
    } catch (error) {
      failures.push(`${name}: ${error.stack}`);
    }
  }

  // For a shell and for Python to judge.
  const texts = ['', 'plain', "it's", "''", '$HOME `id` $(id) \\ "x" !! *', 'a\nb\\', "-n", 'é🦊\t;&|<>#~'];
  const body = {model: 'm', messages: texts.map((content) => ({role: 'user', content})), temperature: 0.5,
                top_k: 3, stop: ["'", '\n'], stream: true, tandem: {token_details: true}};
  const request = {url: "http://h:1/v1/it's", base: 'http://h:1/v1', chat: true, body,
                   seed: '18446744073709551615'};
  done({
    count: Object.keys(tests).length, failures, texts, words: texts.map(shellQuote), body: bodyJson(body, request.seed),
    curl: curlCommand({...request, hasKey: true}),
    python: [true, false].map((hasKey) => pythonProgram({...request, hasKey})),
  });
})().catch((error) => done({count: 0, failures: [`the tests did not run: ${error.stack}`]}));
