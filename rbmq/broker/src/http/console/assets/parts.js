// The parts of all pages: elements, numbers with units, tables. Texts of strangers are set as text, and never become markup.

// What an element does at its events. An element that stays takes over what the one does in whose place it stays.
const listeners = new WeakMap();
const heard = (event) => listeners.get(event.currentTarget)[event.type](event);

/** An element with attributes and children. Strings become text. A function is a listener. */
export function el(name, attributes = {}, ...children) {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (typeof value === 'function') {
      listeners.set(node, { ...listeners.get(node), [key]: value });
      node.addEventListener(key, heard);
    } else if (key === 'text') node.textContent = value;
    else if (value === true) node.setAttribute(key, '');
    else if (value !== false && value != null) node.setAttribute(key, value);
  }
  node.append(...children.filter((child) => child != null));
  return node;
}

/** An element of a picture. */
export function svg(name, attributes = {}, ...children) {
  const node = document.createElementNS('http://www.w3.org/2000/svg', name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  node.append(...children.filter((child) => child != null));
  return node;
}

// Characters that turn, hide or end what is around them, as base/text has them for terminals.
const HIDDEN = /[\u0000-\u001f\u007f-\u009f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff0-\ufffb]/g;

/** A text of a stranger, whose hidden characters are seen. */
export const plain = (text) => String(text).replace(HIDDEN, (c) => `\\u{${c.charCodeAt(0).toString(16)}}`);

/** A name of a stranger as one word of a shell's command. */
export const word = (name) => {
  const text = plain(name);
  return /^[\w./-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`;
};

/** The same, where it could be taken for an option. Behind -- it is none. */
export const quoted = (name) => (plain(name).startsWith('-') ? `-- ${word(name)}` : word(name));

const UNITS = ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB'];

/** A number of bytes. */
export function bytes(n) {
  if (n == null) return '–';
  let unit = 0;
  while (n >= 1024 && unit < UNITS.length - 1) { n /= 1024; unit += 1; }
  return `${unit === 0 || n >= 100 ? Math.round(n) : n.toFixed(1)} ${UNITS[unit]}`;
}

/** Bytes per second. */
export const rate = (n) => (n == null ? '–' : `${bytes(n)}/s`);

/** A count. */
export const count = (n) => (n == null ? '–' : n.toLocaleString('en'));

/** A time that has passed. */
export function time(ms) {
  if (ms == null) return '–';
  if (ms < 1000) return `${Math.round(ms)} ms`;
  const s = Math.floor(ms / 1000);
  if (s < 120) return `${s} s`;
  if (s < 7200) return `${Math.floor(s / 60)} min`;
  if (s < 172800) return `${Math.floor(s / 3600)} h`;
  return `${Math.floor(s / 86400)} d`;
}

/** One, or several. */
export const plural = (n, one, more = `${one}s`) => `${count(n)} ${n === 1 ? one : more}`;

/** The address of the page of a topic. */
const topicPage = (name) => `#/topic?name=${encodeURIComponent(name)}`;

/** A link to a topic. */
export const topicLink = (name) => el('a', { href: topicPage(name), class: 'name', text: plain(name), title: plain(name) });

/** A bar that shows a share from 0 to 1. */
export function meter(share, label, kind = '') {
  const part = Math.max(0, Math.min(1, share || 0));
  const bar = el('span', { class: `bar ${kind}`, role: 'img', 'aria-label': label });
  const fill = el('span');
  fill.style.width = `${(part * 100).toFixed(1)}%`;
  bar.append(fill);
  return bar;
}

/** A short text with a colour of its own. */
export const tag = (text, kind = '') => el('span', { class: `tag ${kind}`, text });

/** The state of a page without rows, with the command that helps. */
export function empty(text, command) {
  return el('div', { class: 'empty' }, el('p', { text }), command && el('p', {}, el('code', { text: command })));
}

/** A problem. */
export const trouble = (text) => el('p', { class: 'note', role: 'alert', text });

/** Replaces the children of a node. */
export const show = (node, ...children) => node.replaceChildren(...children.filter((child) => child != null));

const events = (node) => Object.keys(listeners.get(node) ?? {}).join();

/** Whether an element can stay in the place of another. */
function isAlike(old, wanted) {
  if (old.nodeType !== Node.ELEMENT_NODE || wanted.nodeType !== Node.ELEMENT_NODE) return old.isEqualNode(wanted);
  return old.tagName === wanted.tagName && old.attributes.length === wanted.attributes.length && events(old) === events(wanted)
    && [...wanted.attributes].every(({ name, value }) => old.getAttribute(name) === value);
}

function merge(node, wanted) {
  const old = [...node.childNodes];
  wanted.forEach((child, at) => {
    if (at >= old.length) node.append(child);
    else if (isAlike(old[at], child)) {
      if (listeners.has(child)) listeners.set(old[at], listeners.get(child));
      merge(old[at], [...child.childNodes]);
    }
    else old[at].replaceWith(child);
  });
  old.slice(wanted.length).forEach((child) => child.remove());
}

/**
 * Shows these children of a node. Children that are there already stay: a click that has begun, a selection, the focus, and the place of the scroll
 * bar. So a listener of theirs must not use the elements that it was made with, which may be in no page.
 */
export function update(node, ...children) {
  const focused = node.contains(document.activeElement) ? document.activeElement : null;
  const key = focused && (focused.id || focused.getAttribute('href'));
  merge(node, children.filter((child) => child != null));
  if (!key || document.activeElement === focused) return;
  const again = [...node.querySelectorAll('[id],a[href]')].find((own) => (own.id || own.getAttribute('href')) === key);
  if (again) again.focus({ preventScroll: true });
}

/** A table: columns are [title, cell of a row, class]. */
export function table(caption, columns, rows) {
  const head = el('tr', {}, ...columns.map(([title, , kind]) => el('th', { scope: 'col', class: kind, text: title })));
  const line = (row) => el('tr', {}, ...columns.map(([title, cell, kind]) => {
    const value = cell(row);
    const node = el('td', { class: kind, 'data-title': title });
    node.append(value == null ? '–' : value);
    return node;
  }));
  return el('div', { class: 'wide' }, el('table', {},
    el('caption', { class: 'unseen', text: caption }), el('thead', {}, head), el('tbody', {}, ...rows.map(line))));
}
