// Tells screen readers of an answer that grows: a few words at a time and never more often than
// every three seconds, instead of each token.
export class Announcer {
  static #pause = 3000;
  #region;
  #waiting = '';
  #timer = null;

  // region: with aria-live="polite".
  constructor(region) {
    this.#region = region;
  }

  add(text) {
    this.#waiting += text;
    this.#timer ??= setTimeout(() => this.#say(), Announcer.#pause);
  }

  // All that waits, and this.
  finish(text) {
    clearTimeout(this.#timer);
    this.#timer = null;
    this.#region.textContent = `${this.#waiting} ${text}`;
    this.#waiting = '';
  }

  // Up to the last word that is whole.
  #say() {
    this.#timer = null;
    const end = this.#waiting.search(/\s\S*$/);
    if (end > 0) {
      this.#region.textContent = this.#waiting.slice(0, end);
      this.#waiting = this.#waiting.slice(end);
    }
  }
}
