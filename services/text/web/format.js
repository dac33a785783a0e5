// Numbers and tokens as people read them.

// A share in percent, with what matters of it: 0.004 % is not 0 %, 99.97 % not 100 %.
export function percent(share) {
  const p = 100 * share;
  if (p >= 100 - 1e-9) return '100 %';
  if (p >= 99.95) return '> 99.9 %';
  if (p >= 10) return `${p.toFixed(1)} %`;
  if (p >= 0.01) return `${p.toFixed(2)} %`;
  return p === 0 ? '0 %' : '< 0.01 %';
}

export function milliseconds(ms) {
  if (ms >= 10_000) return `${(ms / 1000).toFixed(1)} s`;
  if (ms >= 1000) return `${(ms / 1000).toFixed(2)} s`;
  return ms >= 10 ? `${Math.round(ms)} ms` : `${ms.toFixed(1)} ms`;
}

export function count(n) {
  return n.toLocaleString('en-US');
}

export function rate(perSecond) {
  return perSecond >= 100 ? count(Math.round(perSecond)) : perSecond.toFixed(1);
}

const CONTROL_NAMES = {'\n': '↵', '\r': '␍', '\t': '⇥', ' ': '␣', '\u00a0': '⍽'};

// A token with its white space to be seen, on one line. Controls, which could turn the direction of
// what follows, are their code points.
export function visible(text) {
  if (text === '') return '(empty)';
  return Array.from(text, (c) => {
    if (c in CONTROL_NAMES) return CONTROL_NAMES[c];
    return /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/u.test(c)
        ? `U+${c.codePointAt(0).toString(16).toUpperCase().padStart(4, '0')}` : c;
  }).join('');
}

// Six steps from 0, as good as certain, to 5, a surprise: one for each factor of about two.
export function surprise(probability) {
  const steps = [0.9, 0.6, 0.35, 0.15, 0.05];
  const at = steps.findIndex((least) => probability >= least);
  return at < 0 ? steps.length : at;
}
