// The numbers of one answer: counted while it comes, and its usage once the server says it.
import {count, milliseconds, rate} from './format.js';

export class Numbers {
  tokens = 0;
  firstAt = null;  // of the clock that the caller has; null: no token yet
  lastAt = null;
  usage = null;
  finish = null;
  seed = null;

  constructor(now) {
    this.begunAt = now;
  }

  add(chunk, now) {
    if (chunk.count > 0) {
      this.firstAt ??= now;
      this.lastAt = now;
      this.firstTokens ??= chunk.count;
      this.tokens += chunk.count;
    }
    this.usage = chunk.usage ?? this.usage;
    this.finish = chunk.finish ?? this.finish;
    this.seed = chunk.seed ?? this.seed;
  }

  // Behind the first chunk, so that reading the prompt does not count; null: not known yet.
  get perSecond() {
    const behind = this.tokens - (this.firstTokens ?? 0);
    return behind > 0 && this.lastAt > this.firstAt ? 1000 * behind / (this.lastAt - this.firstAt) : null;
  }
}

const FINISHES = {
  stop: 'complete', length: 'cut at max tokens', stopped: 'stopped by you', error: 'broken off',
  content_filter: 'filtered', tool_calls: 'tool call',
};

// [{name, label, value}] of what is known.
export function describeNumbers(numbers) {
  const out = [];
  const add = (name, label, value) => out.push({name, label, value});
  if (numbers.perSecond !== null) add('rate', 'tokens/s', rate(numbers.perSecond));
  if (numbers.firstAt !== null) {
    add('first', 'first token', milliseconds(numbers.firstAt - numbers.begunAt));
  }
  const {usage} = numbers;
  add('output', 'output', count(usage?.completion_tokens ?? numbers.tokens));
  if (usage !== null) {
    add('prompt', 'prompt', count(usage.prompt_tokens ?? 0));
    add('cached', 'cached', count(usage.prompt_tokens_details?.cached_tokens ?? 0));
  }
  if (numbers.finish !== null) add('finish', 'end', FINISHES[numbers.finish] ?? numbers.finish);
  if (numbers.seed !== null) add('seed', 'seed', numbers.seed);
  return out;
}

// Updates a <dl>, element by element, so that what is read or selected stays.
export function showNumbers(list, numbers) {
  let before = null;
  for (const {name, label, value} of describeNumbers(numbers)) {
    let item = list.querySelector(`[data-name="${name}"]`);
    if (item === null) {
      item = document.createElement('div');
      item.dataset.name = name;
      item.append(document.createElement('dt'), document.createElement('dd'));
      item.firstChild.textContent = label;
      list.insertBefore(item, before === null ? list.firstChild : before.nextSibling);
    }
    before = item;
    if (item.lastChild.textContent !== value) item.lastChild.textContent = value;
  }
}
