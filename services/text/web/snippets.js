// The request as a command or a program that anyone can run.

// One word of a POSIX shell: in single quotes nothing but the quote itself is special.
export function shellQuote(text) {
  return `'${text.replaceAll("'", "'\\''")}'`;
}

// The body as JSON. seed: decimal digits or '', since a number of JavaScript would round it.
export function bodyJson(body, seed, indent) {
  const json = JSON.stringify(body, null, indent);
  if (seed === '') return json;
  const [gap, end] = indent ? [`\n${' '.repeat(indent)}`, '\n}'] : ['', '}'];
  return `${json.slice(0, json.length - end.length)},${gap}"seed":${indent ? ' ' : ''}${seed}${end}`;
}

export function curlCommand({url, body, seed, hasKey}) {
  const lines = [`curl -N ${shellQuote(url)}`, `-H 'Content-Type: application/json'`];
  if (hasKey) lines.push(`-H "Authorization: Bearer $TANDEM_API_KEY"`);
  lines.push(`-d ${shellQuote(bodyJson(body, seed, 2))}`);
  return lines.join(' \\\n  ');
}

// A literal of Python. JSON's strings are Python's too, but for surrogates that are alone.
function pythonLiteral(value, indent) {
  if (value === true) return 'True';
  if (value === false) return 'False';
  if (value === null) return 'None';
  const pad = ' '.repeat(indent + 4);
  if (Array.isArray(value)) {
    const items = value.map((item) => pythonLiteral(item, indent + 4));
    const short = `[${items.join(', ')}]`;
    return short.length <= 60 && !short.includes('\n')
        ? short : `[\n${items.map((item) => `${pad}${item},\n`).join('')}${' '.repeat(indent)}]`;
  }
  if (typeof value === 'object') {
    const items = Object.entries(value)
        .map(([key, item]) => `${JSON.stringify(key)}: ${pythonLiteral(item, indent + 4)}`);
    return `{${items.join(', ')}}`;
  }
  return JSON.stringify(value);
}

// Fields that the client library does not know; it sends them as they are.
const EXTRA = ['top_k', 'min_p', 'repetition_penalty', 'tandem'];

// base: the URL with /v1.
export function pythonProgram({base, chat, body, seed, hasKey}) {
  const lines = [
    'import os', '', 'from openai import OpenAI', '',
    `client = OpenAI(base_url=${JSON.stringify(base)}, api_key=${
      hasKey ? 'os.environ["TANDEM_API_KEY"]' : '"none"'})`,
    `stream = client.${chat ? 'chat.completions' : 'completions'}.create(`,
  ];
  if (!hasKey) lines.splice(0, 2);
  const extra = {};
  for (const [key, value] of Object.entries(body)) {
    if (EXTRA.includes(key)) extra[key] = value;
    else lines.push(`    ${key}=${pythonLiteral(value, 4)},`);
  }
  if (seed !== '') lines.push(`    seed=${seed},`);
  if (Object.keys(extra).length > 0) lines.push(`    extra_body=${pythonLiteral(extra, 4)},`);
  lines.push(
      ')', 'for chunk in stream:', '    if chunk.choices:',
      `        print(chunk.choices[0].${chat ? 'delta.content or ""' : 'text'}, end="", flush=True)`,
      'print()');
  return lines.join('\n');
}
