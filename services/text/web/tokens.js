// The token view of an answer: each token a span, shaded by how likely it was, with a tooltip that
// says how it was chosen.
import {rankOf, TokenTexts} from './chunks.js';
import {milliseconds, percent, surprise, visible} from './format.js';

function element(tag, className, text) {
  const out = document.createElement(tag);
  if (className) out.className = className;
  if (text !== undefined) out.textContent = text;
  return out;
}

function candidateRow(candidate, isChosen) {
  const share = Math.exp(candidate.logprob);
  const row = element('tr', isChosen ? 'chosen' : '');
  const name = element('th', 'candidate', visible(candidate.text));
  name.scope = 'row';
  const cell = element('td', 'bar-cell');
  const bar = element('span', 'share');
  bar.style.width = `${(100 * share).toFixed(2)}%`;
  cell.append(bar);
  row.append(name, cell, element('td', 'value', percent(share)));
  return row;
}

// What is left to all tokens that are not listed.
function restRow(listed) {
  const rest = Math.max(0, 1 - listed.reduce((sum, {logprob}) => sum + Math.exp(logprob), 0));
  const row = element('tr', 'rest');
  const name = element('th', 'candidate', 'all others');
  name.scope = 'row';
  const cell = element('td', 'bar-cell');
  const bar = element('span', 'share');
  bar.style.width = `${(100 * rest).toFixed(2)}%`;
  cell.append(bar);
  row.append(name, cell, element('td', 'value', percent(rest)));
  return row;
}

function describeDetail(detail) {
  const facts = [];
  const add = (label, value) => facts.push([label, value]);
  if (detail.decided === 'lists') add('decided', 'exactly, from the lists');
  if (detail.decided === 'fetched') add('decided', 'exactly, from more, fetched');
  if (typeof detail.ahead === 'boolean') {
    add('computed', detail.ahead ? 'ahead, on the worker’s draw' : 'after the decision before');
  }
  if (detail.worker !== undefined && detail.worker !== null) add('worker', String(detail.worker));
  if (typeof detail.us === 'number') add('time', milliseconds(detail.us / 1000));
  if (typeof detail.probability === 'number') add('drawn with', percent(detail.probability));
  return facts;
}

function isNarrow() {
  return matchMedia('(max-width: 760px)').matches;
}

// The one tooltip of the page. Shown beside its token, or at the bottom of a narrow window.
export class TokenTooltip {
  #box;
  #anchor = null;

  constructor(box) {
    this.#box = box;
    const follow = () => {
      if (this.#anchor !== null) this.#place(this.#anchor);
    };
    addEventListener('scroll', (event) => {
      if (!this.#box.contains(event.target)) follow();
    }, {capture: true, passive: true});
    addEventListener('resize', follow);
  }

  get shown() { return this.#anchor !== null; }

  show(anchor, token) {
    this.#anchor?.removeAttribute('aria-describedby');
    this.#anchor = anchor;
    anchor.setAttribute('aria-describedby', this.#box.id);
    this.#box.replaceChildren(...this.#content(token));
    this.#box.hidden = false;
    this.#place(anchor);
    // At the bottom of a narrow window it may hide the token itself.
    const hidden = anchor.getBoundingClientRect().bottom + 12 - this.#box.getBoundingClientRect().top;
    if (isNarrow() && hidden > 0) anchor.closest('main')?.scrollBy(0, hidden);
  }

  hide() {
    this.#anchor?.removeAttribute('aria-describedby');
    this.#anchor = null;
    this.#box.hidden = true;
  }

  #content(token) {
    const head = element('div', 'tooltip-head');
    head.append(element('code', 'token-name', visible(token.text)));
    const parts = [head];
    if (token.logprob !== null) {
      head.append(element('strong', 'token-share', percent(Math.exp(token.logprob))));
      const rank = rankOf(token);
      if (token.top.length > 0) {
        parts.push(element('p', 'token-rank', rank === null
            ? `not among the ${token.top.length} most likely` : `rank ${rank}`));
      }
      const listed = rank === null ? [...token.top, token] : token.top;
      const table = element('table', 'candidates');
      table.setAttribute('aria-label', 'Candidates and their probabilities');
      table.append(...listed.map((candidate, i) =>
        candidateRow(candidate, candidate === token || i + 1 === rank)), restRow(listed));
      parts.push(table);
    }
    if (token.detail) {
      const list = element('dl', 'facts');
      for (const [label, value] of describeDetail(token.detail)) {
        const item = element('div');
        item.append(element('dt', '', label), element('dd', '', value));
        list.append(item);
      }
      parts.push(list);
    }
    return parts;
  }

  // Below the token, or above where there is no room; inside of the window.
  #place(anchor) {
    const {style} = this.#box;
    style.left = style.top = '';
    if (isNarrow()) return;  // the style sheet has it at the bottom
    const token = anchor.getClientRects()[0] ?? anchor.getBoundingClientRect();
    const box = this.#box.getBoundingClientRect();
    const left = Math.max(8, Math.min(token.left - 12, innerWidth - box.width - 8));
    const below = token.bottom + 6;
    const top = below + box.height <= innerHeight - 8 ? below : Math.max(8, token.top - 6 - box.height);
    style.left = `${Math.round(left)}px`;
    style.top = `${Math.round(top)}px`;
  }
}

// The spans of one answer in `parent`. One of them can be reached with Tab, the others from there
// with the arrow keys.
export class TokenSpans {
  #parent;
  #tooltip;
  #tokens = [];
  #texts = new TokenTexts();

  constructor(parent, tooltip) {
    this.#parent = parent;
    this.#tooltip = tooltip;
    const tokenOf = (target) => {
      const span = target.closest?.('.token');
      return span ? [span, this.#tokens[Number(span.dataset.index)]] : null;
    };
    const showTarget = (event) => {
      const found = tokenOf(event.target);
      if (found) tooltip.show(...found);
    };
    parent.addEventListener('mouseover', showTarget);
    parent.addEventListener('click', showTarget);
    parent.addEventListener('focusin', (event) => {
      const found = tokenOf(event.target);
      if (!found) return;
      this.#makeReachable(found[0]);
      tooltip.show(...found);
    });
    parent.addEventListener('mouseleave', () => {
      const focused = tokenOf(document.activeElement);
      if (focused && parent.contains(focused[0])) tooltip.show(...focused);
      else tooltip.hide();
    });
    parent.addEventListener('focusout', () => tooltip.hide());
    parent.addEventListener('keydown', (event) => this.#onKey(event));
  }

  add(token) {
    const shown = this.#texts.next(token);
    const level = token.logprob === null ? 'none' : surprise(Math.exp(token.logprob));
    const span = element('span', `token s-${level}`, shown);
    if (shown === '') {
      span.classList.add('mark');
      span.textContent = token.text === '' ? '∅' : '·';
    }
    span.dataset.index = this.#tokens.length;
    span.tabIndex = this.#tokens.length === 0 ? 0 : -1;
    this.#tokens.push(token);
    this.#parent.append(span);
  }

  #makeReachable(span) {
    this.#parent.querySelector('.token[tabindex="0"]')?.setAttribute('tabindex', '-1');
    span.tabIndex = 0;
  }

  #onKey(event) {
    const spans = this.#parent.children;
    const at = Number(event.target.dataset.index);
    const next = {
      ArrowLeft: at - 1, ArrowRight: at + 1, Home: 0, End: spans.length - 1,
    }[event.key];
    if (next === undefined || Number.isNaN(at) || event.altKey || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    spans[Math.max(0, Math.min(spans.length - 1, next))].focus();
  }
}
