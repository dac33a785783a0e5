// The little of Markdown that answers are full of, as DOM nodes: fenced code, lists, headings, bold,
// and code in a line. Text goes into text nodes alone, so nothing of it is ever HTML; what is not
// known here stays as it was written.

function inline(parent, text) {
  const pattern = /`([^`\n]+)`|\*\*([^*\n]+)\*\*/g;
  let from = 0;
  for (const match of text.matchAll(pattern)) {
    parent.append(text.slice(from, match.index));
    const part = document.createElement(match[1] !== undefined ? 'code' : 'strong');
    part.textContent = match[1] ?? match[2];
    parent.append(part);
    from = match.index + match[0].length;
  }
  parent.append(text.slice(from));
}

function listItem(line) {
  const match = /^\s{0,6}(?:([-*+])|(\d{1,4})[.)])\s+(.*)$/.exec(line);
  return match && {ordered: match[2] !== undefined, start: Number(match[2] ?? 1), text: match[3]};
}

// A fragment with the blocks of the text.
export function renderMarkdown(text) {
  const out = document.createDocumentFragment();
  const lines = text.split('\n');
  let paragraph = [];
  let list = null;
  const endParagraph = () => {
    if (paragraph.length === 0) return;
    const p = document.createElement('p');
    inline(p, paragraph.join('\n'));
    out.append(p);
    paragraph = [];
  };
  const endBlock = () => {
    endParagraph();
    list = null;
  };
  for (let i = 0; i < lines.length; ++i) {
    const line = lines[i];
    const fence = /^\s{0,3}(`{3,})[^`]*$/.exec(line);
    const heading = /^(#{1,4})\s+(.*)$/.exec(line);
    const item = listItem(line);
    if (fence !== null) {
      endBlock();
      const code = [];
      const ends = (candidate) => candidate.trim().startsWith(fence[1]) && /^\s*`+\s*$/.test(candidate);
      while (++i < lines.length && !ends(lines[i])) code.push(lines[i]);
      const pre = document.createElement('pre');
      pre.textContent = code.join('\n');
      pre.tabIndex = 0;
      out.append(pre);
    } else if (heading !== null) {
      endBlock();
      const title = document.createElement('p');
      title.className = 'title';
      inline(title, heading[2]);
      out.append(title);
    } else if (item !== null) {
      endParagraph();
      if (list === null || (list.tagName === 'OL') !== item.ordered) {
        list = document.createElement(item.ordered ? 'ol' : 'ul');
        if (item.ordered) list.start = item.start;
        out.append(list);
      }
      const li = document.createElement('li');
      inline(li, item.text);
      list.append(li);
    } else if (line.trim() === '') {
      endParagraph();
    } else if (list !== null && paragraph.length === 0 && /^\s+/.test(line)) {
      list.lastChild.append('\n');
      inline(list.lastChild, line.trim());
    } else {
      list = null;
      paragraph.push(line);
    }
  }
  endBlock();
  return out;
}
