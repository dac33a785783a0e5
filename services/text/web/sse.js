// Server-sent events out of the bytes of a response, wherever these are cut.

// push(bytes) returns the data of each event that is complete now; a line may end with CR, LF or both,
// and a cut may be inside of a character or between CR and LF. Comments and other fields are skipped.
// What is not ended by an empty line when the stream ends is no event.
export class SseParser {
  #decoder = new TextDecoder();
  #line = '';
  #data = [];
  #afterCr = false;

  push(bytes) {
    const events = [];
    const text = this.#decoder.decode(bytes, {stream: true});
    let from = 0;
    for (let i = 0; i < text.length; ++i) {
      const c = text[i];
      if (c === '\n' && this.#afterCr && i === from) {
        this.#afterCr = false;
        from = i + 1;
        continue;
      }
      if (c !== '\n' && c !== '\r') {
        this.#afterCr = false;
        continue;
      }
      this.#endLine(this.#line + text.slice(from, i), events);
      this.#line = '';
      this.#afterCr = c === '\r';
      from = i + 1;
    }
    this.#line += text.slice(from);
    return events;
  }

  #endLine(line, events) {
    if (line === '') {
      if (this.#data.length > 0) events.push(this.#data.join('\n'));
      this.#data = [];
    } else if (line === 'data' || line.startsWith('data:')) {
      const value = line.slice(5);
      this.#data.push(value.startsWith(' ') ? value.slice(1) : value);
    }
  }
}
