// The turns of a conversation, or the one answer of a completion, on the page.
import {renderMarkdown} from './markdown.js';
import {Numbers, showNumbers} from './numbers.js';
import {TokenSpans} from './tokens.js';

function button(label, className, onClick) {
  const out = document.createElement('button');
  out.type = 'button';
  out.className = className;
  out.textContent = label;
  out.addEventListener('click', onClick);
  return out;
}

const NAMES = {user: 'You', assistant: 'Model', completion: 'Output'};

// One turn. What it says is `text`; an answer also has its tokens and numbers.
export class Turn {
  element = document.createElement('li');
  tokens = [];
  numbers = null;
  #text;
  #body = document.createElement('div');
  #view = document.createElement('div');
  #node = null;   // of the text while it grows
  #spans = null;  // of the token view
  #numbersList = null;
  #actions = document.createElement('div');
  #showsTokens = false;
  #growing = false;

  // role: user, assistant or completion. actions: {tooltip, busy(), edited(turn), regenerate(turn)}.
  constructor(role, text, actions) {
    this.role = role;
    this.#text = text;
    this.actions = actions;
    this.element.className = `turn ${role}`;
    const who = document.createElement('div');
    who.className = 'who';
    who.textContent = NAMES[role];
    this.#body.className = 'body';
    this.#actions.className = 'actions';
    this.#body.append(this.#view, this.#actions);
    this.element.append(who, this.#body);
    this.#render();
    this.#showActions();
  }

  get text() { return this.#text; }

  showTokens(on) {
    this.#showsTokens = on;
    this.#render();
  }

  // An answer begins.
  begin(now) {
    this.#growing = true;
    this.element.setAttribute('aria-busy', 'true');
    this.numbers = new Numbers(now);
    this.#numbersList = document.createElement('dl');
    this.#numbersList.className = 'numbers';
    this.#body.insertBefore(this.#numbersList, this.#actions);
    this.#actions.replaceChildren();
    this.#render();
  }

  add(chunk, now) {
    this.#text += chunk.text;
    this.tokens.push(...chunk.tokens);
    if (this.#spans !== null) {
      for (const token of chunk.tokens) this.#spans.add(token);
    } else if (this.#showsTokens && this.tokens.length > 0) {
      this.#render();
    } else {
      this.#node?.appendData(chunk.text);
    }
    this.numbers.add(chunk, now);
    showNumbers(this.#numbersList, this.numbers);
  }

  end() {
    this.#growing = false;
    this.element.removeAttribute('aria-busy');
    if (this.#spans === null) this.#render();
    showNumbers(this.#numbersList, this.numbers);
    this.#showActions();
  }

  fail(message) {
    const note = document.createElement('p');
    note.className = 'notice';
    note.setAttribute('role', 'alert');
    note.textContent = message;
    this.#body.insertBefore(note, this.#numbersList);
  }

  #render() {
    const view = document.createElement('div');
    view.className = 'text';
    this.#node = this.#spans = null;
    if (this.#showsTokens && this.tokens.length > 0) {
      view.classList.add('tokens');
      view.setAttribute('role', 'group');
      view.setAttribute('aria-label', 'Tokens of the answer; arrow keys go from one to the next');
      this.#spans = new TokenSpans(view, this.actions.tooltip);
      for (const token of this.tokens) this.#spans.add(token);
    } else if (this.role === 'assistant' && !this.#growing) {
      view.classList.add('formatted');
      view.append(renderMarkdown(this.#text));
    } else {
      this.#node = document.createTextNode(this.#text);
      view.append(this.#node);
    }
    this.#view.replaceWith(view);
    this.#view = view;
  }

  #showActions() {
    const copy = button('Copy', 'quiet', async () => {
      copy.textContent = await copyText(this.#text, this.#view);
      setTimeout(() => { copy.textContent = 'Copy'; }, 1500);
    });
    this.#actions.replaceChildren(copy);
    if (this.role !== 'completion') this.#actions.append(button('Edit', 'quiet', () => this.#edit()));
    if (this.role !== 'user') {
      this.#actions.append(button('Regenerate', 'quiet', () => this.actions.regenerate(this)));
    }
  }

  #edit() {
    if (this.actions.busy()) return;
    const box = document.createElement('textarea');
    box.value = this.#text;
    box.className = 'edit';
    box.setAttribute('aria-label', 'Text of this turn');
    const leave = () => {
      this.#render();
      this.#showActions();
      this.#actions.querySelector('button:nth-child(2)').focus();
    };
    const save = () => {
      if (this.actions.busy()) return;
      if (box.value !== this.#text) {
        this.#text = box.value;
        this.tokens = [];  // they say nothing of this text
      }
      leave();
      if (this.role === 'user') this.actions.edited(this);
    };
    box.addEventListener('keydown', (event) => {
      if (event.key === 'Escape') {
        event.stopPropagation();
        leave();
      } else if (event.key === 'Enter' && !event.shiftKey && !event.isComposing) {
        event.preventDefault();
        save();
      }
    });
    this.#view.replaceChildren(box);
    this.#spans = this.#node = null;
    this.#actions.replaceChildren(
        button(this.role === 'user' ? 'Send again' : 'Save', 'quiet', save), button('Cancel', 'quiet', leave));
    fitHeight(box);
    box.addEventListener('input', () => fitHeight(box));
    box.focus();
  }
}

// As high as its text, up to what its style allows.
export function fitHeight(box) {
  box.style.height = 'auto';
  box.style.height = `${box.scrollHeight + box.offsetHeight - box.clientHeight}px`;
}

// Copies the text, or selects the element that shows it, where the browser does not allow that (a page
// that came without TLS from another machine). Returns which.
export async function copyText(text, element) {
  try {
    await navigator.clipboard.writeText(text);
    return 'Copied';
  } catch {
    getSelection().selectAllChildren(element);
    return 'Selected';
  }
}

// Turns in order, in a list of the page.
export class Thread {
  turns = [];
  #list;

  constructor(list) {
    this.#list = list;
  }

  set hidden(on) { this.#list.hidden = on; }

  push(turn) {
    this.turns.push(turn);
    this.#list.append(turn.element);
  }

  // Takes this turn and all behind it away, and returns them.
  cutFrom(index) {
    const cut = this.turns.splice(index);
    for (const turn of cut) turn.element.remove();
    return cut;
  }

  showTokens(on) {
    for (const turn of this.turns) turn.showTokens(on);
  }

  // As the API takes them.
  messages() {
    return this.turns.map(({role, text}) => ({role, content: text}));
  }
}
