// A chunk of a streamed answer, of chats and completions alike, as the page uses it.
//
// A token: {text, bytes, logprob, top: [{text, logprob}], detail}. logprob and top are of the raw
// distribution, top best first; null and empty where the server sent none. detail: {decided, ahead,
// worker, us, probability}, or null.

const encoder = new TextEncoder();

// The bytes of a token that a server without byte arrays names: completions have texts alone.
function bytesOf(entry) {
  return Array.isArray(entry.bytes) ? Uint8Array.from(entry.bytes) : encoder.encode(entry.token);
}

function chatTokens(content) {
  return content.map((entry) => ({
    text: entry.token,
    bytes: bytesOf(entry),
    logprob: entry.logprob,
    top: (entry.top_logprobs ?? []).map(({token, logprob}) => ({text: token, logprob})),
  }));
}

function completionTokens(logprobs) {
  return logprobs.tokens.map((text, i) => ({
    text,
    bytes: encoder.encode(text),
    logprob: logprobs.token_logprobs?.[i] ?? null,
    top: Object.entries(logprobs.top_logprobs?.[i] ?? {})
        .map(([candidate, logprob]) => ({text: candidate, logprob}))
        .sort((a, b) => b.logprob - a.logprob),
  }));
}

function tokensOf(choice) {
  if (Array.isArray(choice.logprobs?.content)) return chatTokens(choice.logprobs.content);
  if (Array.isArray(choice.logprobs?.tokens)) return completionTokens(choice.logprobs);
  return [];
}

// Seeds have 64 bits, which JSON.parse would round: found in the text of the chunk. In a string of
// it the quotes would have backslashes.
function seedOf(json) {
  return /[{,]\s*"seed"\s*:\s*"?(\d{1,20})\b/.exec(json)?.[1] ?? null;
}

// json: the text of one chunk. {text, tokens, count, finish, usage, seed, error}: count is the number
// of tokens, of which `tokens` may know nothing. Throws a SyntaxError if it is no JSON object.
export function readChunk(json) {
  const chunk = JSON.parse(json);
  if (typeof chunk !== 'object' || chunk === null) throw new SyntaxError('no JSON object');
  const out = {
    text: '', tokens: [], count: 0, finish: null, usage: chunk.usage ?? null, seed: seedOf(json),
    error: chunk.error ?? null,
  };
  const choice = chunk.choices?.[0];
  if (choice === undefined) return out;
  out.text = choice.delta?.content ?? choice.text ?? '';
  out.finish = choice.finish_reason ?? null;
  out.tokens = tokensOf(choice);
  const details = choice.tandem?.tokens ?? [];
  out.tokens.forEach((token, i) => { token.detail = details[i] ?? null; });
  out.count = out.tokens.length || details.length || (out.text === '' ? 0 : 1);
  return out;
}

// Rank of a token among its candidates, from 1; null: it is not one of them.
export function rankOf(token) {
  const at = token.top.findIndex(({text, logprob}) =>
    text === token.text && Math.abs(logprob - token.logprob) < 1e-6);
  return at < 0 ? null : at + 1;
}

// The texts that tokens show in order: bytes of a character that is cut between tokens are with the
// last of them, the others show nothing.
export class TokenTexts {
  #decoder = new TextDecoder();

  next(token) {
    return this.#decoder.decode(token.bytes, {stream: true});
  }
}
