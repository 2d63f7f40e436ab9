// The newest messages of a topic, and one that somebody publishes.

import { address, ask } from '/ui/live.js';
import { bytes, count, el, empty, plain, plural, show, topicLink, trouble } from '/ui/parts.js';

/** JSON with its lines, other text as it is. Digits in rows of 16 bytes. */
function body(row) {
  if (row.hex !== null) return row.hex.replace(/(..)/g, '$1 ').replace(/(.{48})/g, '$1\n');
  try {
    const value = JSON.parse(row.text);
    return typeof value === 'object' && value ? JSON.stringify(value, null, 2) : row.text;
  } catch {
    return row.text;
  }
}

const shown = (text) => text.split('\n').map(plain).join('\n');

const entry = (row) => el('li', { class: 'card message' },
  el('p', { class: 'calm', text: `${bytes(row.length)}, ends at position ${count(row.end)}${row.hex === null ? '' : ', as hexadecimal digits'}${row.is_cut ? ', the beginning' : ''}` }),
  el('pre', { text: shown(body(row)) }));

/** The form that publishes. */
function form(topic, done) {
  const told = el('div', { 'aria-live': 'polite' });
  const text = el('textarea', { id: 'text', rows: 3, maxlength: 65536, required: true, spellcheck: 'false' });
  const button = el('button', { class: 'main', type: 'submit', text: 'Publish' });
  return el('form', { class: 'card publish', submit: async (event) => {
    event.preventDefault();
    button.disabled = true;
    try {
      const { length } = await ask('/messages', { method: 'POST', body: { topic, text: text.value } });
      text.value = '';
      show(told, el('p', { class: 'well good', text: `Published ${plural(length, 'byte')}.` }));
      done();
    } catch (problem) {
      show(told, trouble(plain(problem.message)));
    }
    button.disabled = false;
  } }, el('label', { for: 'text', text: 'One message' }), text, button, told);
}

/** The page of messages. */
export function messages({ main, parameters, session, failed, state }) {
  const topic = parameters.get('topic') || '';
  const name = el('input', { type: 'search', id: 'search', placeholder: 'Name of a topic', 'aria-label': 'Name of a topic', value: topic, maxlength: 255 });
  const many = el('select', { id: 'count', 'aria-label': 'How many' }, ...['10', '30', '100'].map((n) =>
    el('option', { value: n, text: `newest ${n}`, selected: n === (parameters.get('count') || '10') })));
  const only = el('input', { id: 'only', placeholder: 'Only with this text', 'aria-label': 'Only with this text', maxlength: 255 });
  const node = el('div', { id: 'list' });
  let rows = null;
  const draw = () => {
    if (!rows) return;
    const wanted = only.value.toLowerCase();
    const found = rows.filter((row) => body(row).toLowerCase().includes(wanted)).reverse();
    show(node, el('p', { class: 'calm', text: `${plural(found.length, 'message')}, the newest first` }),
      rows.length === 0 ? empty('The broker has no message of this topic. This command publishes one:', "echo hello | rbmq pub news") : null,
      el('ul', { class: 'messages' }, ...found.map(entry)));
  };
  const read = async () => {
    if (!topic) return;
    try {
      ({ rows } = await ask(address('/messages', { topic, count: many.value })));
      draw();
    } catch (problem) {
      rows = null;
      show(node);
      failed(problem);
    }
  };
  const go = (event) => {
    event.preventDefault();
    const to = `#/messages?${new URLSearchParams({ topic: name.value, count: many.value })}`;
    if (to === location.hash) read();
    else location.hash = to;
  };
  only.addEventListener('input', draw);
  many.addEventListener('change', go);
  show(main, el('h2', { text: 'Messages' }),
    el('form', { class: 'tools', submit: go }, name, many, el('button', { class: 'main', type: 'submit', text: 'Show' }), only),
    topic && session.may_observe ? el('p', {}, topicLink(topic)) : null,
    topic && session.may_publish ? form(topic, read) : null,
    topic ? null : el('p', { class: 'calm', text: 'Its newest messages are read once. No publisher waits for that.' }), node);
  state('still');
  read();
}
