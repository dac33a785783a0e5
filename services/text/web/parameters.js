// The parameters of a request: their ranges, their controls, and the fields that they become.

// off: what the server takes where the field is absent; it is then left out.
export const PARAMETERS = [
  {key: 'temperature', label: 'Temperature', min: 0, max: 2, most: 100, step: 0.05, initial: 0.7, off: 1,
   hint: '0: always the most likely token'},
  {key: 'top_p', label: 'Top p', min: 0, max: 1, step: 0.01, initial: 0.95, off: 1,
   hint: 'The most likely tokens that together have this share; 1: all'},
  {key: 'top_k', label: 'Top k', min: 0, max: 100, most: 262144, step: 1, initial: 0, off: 0,
   hint: 'So many of the most likely tokens; 0: all'},
  {key: 'min_p', label: 'Min p', min: 0, max: 1, step: 0.01, initial: 0, off: 0,
   hint: 'Tokens of at least this share of the best one’s; 0: all'},
  {key: 'repetition_penalty', label: 'Repetition penalty', min: 0.5, max: 2, least: 0.01, most: 100,
   step: 0.01, initial: 1, off: 1, hint: 'Above 1: what stands in prompt or answer is less likely'},
  {key: 'presence_penalty', label: 'Presence penalty', min: -2, max: 2, step: 0.05, initial: 0, off: 0,
   hint: 'Above 0: what stands in the answer is less likely'},
  {key: 'frequency_penalty', label: 'Frequency penalty', min: -2, max: 2, step: 0.05, initial: 0, off: 0,
   hint: 'The same, the more often the more'},
  {key: 'max_tokens', label: 'Max tokens', min: 1, max: 2048, most: 268435456, step: 1, initial: 512,
   hint: 'The answer is cut there'},
  {key: 'candidates', label: 'Candidates per token', min: 0, max: 20, step: 1, initial: 5,
   hint: 'That the token view shows; 0: no token view'},
];

const WHOLE = new Set(['top_k', 'max_tokens', 'candidates']);

export function initialParameters() {
  return Object.fromEntries(PARAMETERS.map(({key, initial}) => [key, initial]));
}

// {value}, or {error} in words.
export function checkNumber(parameter, text) {
  const {key, label, min, max, least = min, most = max} = parameter;
  const value = text.trim() === '' ? NaN : Number(text);
  if (!Number.isFinite(value)) return {error: `${label} has to be a number`};
  if (WHOLE.has(key) && !Number.isInteger(value)) return {error: `${label} has to be a whole number`};
  if (value < least || value > most) return {error: `${label} is ${value}: ${least} to ${most}`};
  return {value};
}

// {value}: the digits, '' for none; or {error}.
export function checkSeed(text) {
  const digits = text.trim();
  if (digits === '') return {value: ''};
  if (!/^\d{1,20}$/.test(digits) || BigInt(digits) >= 2n ** 64n) {
    return {error: `Seed is ${digits.slice(0, 24)}: a whole number from 0 to 2⁶⁴ − 1`};
  }
  return {value: BigInt(digits).toString()};
}

// One on each line; \n, \r, \t and \\ stand for what they do elsewhere. {value: [...]}, or {error}.
export function checkStops(text) {
  const stops = text.split('\n').filter((line) => line !== '').map((line) =>
    line.replace(/\\([nrt\\])/g, (_, c) => ({n: '\n', r: '\r', t: '\t', '\\': '\\'})[c]));
  if (stops.length > 16) return {error: `${stops.length} stop strings: at most 16`};
  const long = stops.find((stop) => new TextEncoder().encode(stop).length > 256);
  if (long !== undefined) return {error: `“${long.slice(0, 20)}…” is longer than 256 bytes`};
  return {value: stops};
}

// The body of a request, without the seed (bodyJson). input: {messages} or {prompt}.
export function requestBody({model, input, values, stops}) {
  const body = {};
  if (model !== '') body.model = model;
  Object.assign(body, input);
  for (const {key, off} of PARAMETERS) {
    if (key !== 'candidates' && values[key] !== off) body[key] = values[key];
  }
  if (stops.length > 0) body.stop = stops;
  body.stream = true;
  body.stream_options = {include_usage: true};
  if (values.candidates > 0) {
    if (input.messages !== undefined) {
      body.logprobs = true;
      body.top_logprobs = values.candidates;
    } else {
      body.logprobs = values.candidates;
    }
    body.tandem = {token_details: true};
  }
  return body;
}

// The controls of all parameters: a number, which may lie beyond the slider, and a slider. Calls
// onChange(values, valid) after each change.
export class ParameterPanel {
  #rows = new Map();
  #onChange;
  values = initialParameters();

  constructor(parent, onChange) {
    this.#onChange = onChange;
    for (const parameter of PARAMETERS) parent.append(this.#makeRow(parameter));
  }

  get valid() {
    return [...this.#rows.values()].every(({error}) => error.hidden);
  }

  reset() {
    this.values = initialParameters();
    for (const [key, row] of this.#rows) {
      row.number.value = row.slider.value = this.values[key];
      this.#show(row, null);
    }
    this.#onChange();
  }

  #makeRow(parameter) {
    const {key, label, min, max, step, initial, hint} = parameter;
    const make = (tag, properties) => Object.assign(document.createElement(tag), properties);
    const row = make('div', {className: 'parameter', title: hint});
    const name = make('label', {htmlFor: `p-${key}`, textContent: label});
    const number = make('input', {
      id: `p-${key}`, className: 'number', inputMode: 'decimal', autocomplete: 'off', value: initial});
    const slider = make('input', {
      id: `s-${key}`, type: 'range', min, max, step, value: initial, tabIndex: -1});
    slider.setAttribute('aria-label', `${label}, slider`);
    const error = make('p', {id: `e-${key}`, className: 'error', hidden: true});
    number.setAttribute('aria-describedby', error.id);
    const controls = {number, slider, error};
    number.addEventListener('input', () => this.#take(parameter, controls, number.value));
    number.addEventListener('keydown', (event) => {
      const way = {ArrowUp: 1, ArrowDown: -1}[event.key];
      if (way === undefined) return;
      event.preventDefault();
      const moved = Number(number.value) + way * step;
      const {least = min, most = max} = parameter;
      if (!Number.isFinite(moved)) return;
      number.value = Number(Math.min(most, Math.max(least, moved)).toFixed(4));
      this.#take(parameter, controls, number.value);
    });
    slider.addEventListener('input', () => {
      number.value = slider.value;
      this.#take(parameter, controls, slider.value);
    });
    this.#rows.set(key, controls);
    row.append(name, number, slider, error);
    return row;
  }

  #take(parameter, controls, text) {
    const {value, error} = checkNumber(parameter, text);
    this.#show(controls, error ?? null);
    if (error === undefined) {
      this.values = {...this.values, [parameter.key]: value};
      controls.slider.value = value;
    }
    this.#onChange();
  }

  #show({number, error}, text) {
    showError(number, error, text);
  }
}

// text: null where there is none.
export function showError(input, error, text) {
  input.setAttribute('aria-invalid', String(text !== null));
  error.textContent = text ?? '';
  error.hidden = text === null;
}
