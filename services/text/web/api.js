// Calls to the server that this page comes from.
import {readChunk} from './chunks.js';
import {SseParser} from './sse.js';

// Also where a proxy puts a path before all others.
export function apiUrl(path) {
  return new URL(`v1/${path}`, document.baseURI).href;
}

// A refusal or a failure, in words.
export class ApiError extends Error {}

function headers(key) {
  const out = {'Content-Type': 'application/json'};
  if (key !== '') out.Authorization = `Bearer ${key}`;
  return out;
}

const CAUSES = {
  400: 'The server refuses this request',
  401: 'The server wants an API key, or another one',
  403: 'This API key may not do that',
  404: 'The server does not have that',
  408: 'The request took too long to arrive',
  413: 'The request is too large',
  429: 'The server has all the work that it takes now',
  500: 'The server failed',
  502: 'Whatever is in front of the server got no answer',
  503: 'No worker is there to answer',
  504: 'The answer took too long',
};

// What to tell people of an answer that is none. error: the JSON's `error`, or null.
export function describeFailure(status, error, retryAfter) {
  const cause = CAUSES[status] ?? 'The server did not answer as expected';
  const message = typeof error?.message === 'string' && error.message !== '' ? `: ${error.message}` : '';
  const again = /^\d{1,5}$/.test(retryAfter ?? '') ? ` Try again in ${retryAfter} s.` : '';
  return `${cause} (${status})${message.replace(/\.?$/, '.')}${again}`;
}

async function check(response) {
  if (response.ok) return;
  const body = await response.text().catch(() => '');
  let error = null;
  try {
    error = JSON.parse(body).error ?? null;
  } catch {
    // Of something in between that speaks no JSON.
  }
  throw new ApiError(describeFailure(response.status, error, response.headers.get('Retry-After')));
}

async function call(url, options) {
  try {
    return await fetch(url, options);
  } catch (error) {
    if (error.name === 'AbortError') throw error;
    throw new ApiError('The server cannot be reached.');
  }
}

// [{id, ...}], as the server names them.
export async function listModels(key) {
  const response = await call(apiUrl('models'), {headers: headers(key)});
  await check(response);
  return (await response.json()).data ?? [];
}

// Posts `json` and yields what readChunk makes of each chunk, until the server says that it is done.
// Throws an ApiError, also for a stream that breaks off; an AbortError once `signal` is aborted.
export async function* streamAnswer({path, json, key, signal}) {
  const response = await call(apiUrl(path), {method: 'POST', headers: headers(key), body: json, signal});
  await check(response);
  const reader = response.body.getReader();
  const parser = new SseParser();
  try {
    for (;;) {
      let part;
      try {
        part = await reader.read();
      } catch (error) {
        if (error.name === 'AbortError') throw error;
        throw new ApiError('The connection was lost. What had come is kept.');
      }
      if (part.done) throw new ApiError('The answer broke off. What had come is kept.');
      for (const data of parser.push(part.value)) {
        if (data === '[DONE]') return;
        let chunk;
        try {
          chunk = readChunk(data);
        } catch {
          throw new ApiError('The server sent something that is no answer. What had come is kept.');
        }
        if (chunk.error !== null) {
          const why = typeof chunk.error.message === 'string' ? `: ${chunk.error.message}` : '.';
          throw new ApiError(`The server ended the answer${why}`);
        }
        yield chunk;
      }
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}
