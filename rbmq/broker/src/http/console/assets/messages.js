// The messages of a topic, and one that somebody publishes.

import { address, ask } from '/ui/live.js';
import { bytes, count, el, empty, plain, plural, quoted, show, tag, topicLink, trouble } from '/ui/parts.js';

/** JSON with its lines, other text as it is. Digits in rows of 16 bytes. */
function body(row) {
  if (row.hex !== null) return row.hex.replace(/(..)/g, '$1 ').replace(/(.{48})/g, '$1\n');
  try {
    const value = JSON.parse(row.text);
    return (typeof value === 'object' && value && indented(row.text)) || row.text;
  } catch {
    return row.text;
  }
}

/** The deepest JSON that is shown with its lines. */
const DEEPEST = 32;

/**
 * Valid JSON with a line for each member; null if it is deep, since its lines would be long. Numbers and texts stay as they are: a parser changes
 * large numbers and equal names.
 */
function indented(json) {
  let [out, depth] = ['', 0];
  const line = () => `\n${'  '.repeat(depth)}`;
  for (const [token] of json.matchAll(/"(?:[^"\\]|\\.)*"|\{\s*\}|\[\s*\]|[{}[\]:,]|[^\s{}[\]:,"]+/g)) {
    if (token === '}' || token === ']') {
      depth -= 1;
      out += line();
    }
    out += token === ':' ? ': ' : token;
    if (token === '{' || token === '[') depth += 1;
    if (depth > DEEPEST) return null;
    if ('{[,'.includes(token)) out += line();
  }
  return out;
}

/** The digits of a text. */
const digits = (row) => (row.hex !== null ? row : { hex: [...new TextEncoder().encode(row.text)].map((n) => n.toString(16).padStart(2, '0')).join('') });

const shown = (text) => text.split('\n').map((line) => plain(line.replaceAll('\t', '    '))).join('\n');

const when = (ms) => new Date(ms).toLocaleString();

/** A message. */
function entry(row) {
  const text = el('pre', { text: shown(body(row)), tabindex: 0, 'aria-label': `Message at position ${row.position}` });
  let isHex = row.hex !== null;
  const turn = el('button', { type: 'button', class: 'small', 'aria-pressed': 'false', text: 'Hex', click: () => {
    isHex = !isHex;
    turn.setAttribute('aria-pressed', String(isHex));
    text.textContent = shown(body(isHex ? digits(row) : row));
  } });
  return el('li', { class: 'card message' },
    el('p', { class: 'about' }, el('span', { class: 'number', text: `position ${count(row.position)}` }),
      row.time_ms === null ? null : el('time', { datetime: new Date(row.time_ms).toISOString(), text: when(row.time_ms) }),
      el('span', { text: row.is_cut ? `the beginning of ${bytes(row.length)}` : plural(row.length, 'byte') }),
      row.hex === null && row.text !== '' ? turn : null),
    row.attributes.length ? el('p', { class: 'pair' }, ...row.attributes.map(([name, value]) => tag(`${plain(name)} = ${plain(value)}`))) : null,
    text);
}

/** The messages of a log, the newest first, and the way to older and newer ones. */
function log(of, isOne, to) {
  const rows = [...of.rows].reverse();
  const first = of.rows[0];
  const last = of.rows[of.rows.length - 1];
  const name = of.is_kept ? 'on disk' : `in memory${of.publisher ? `, of ${plain(of.publisher)}` : ''}`;
  const title = `${of.is_stream ? 'The newest bytes' : plural(rows.length, 'message')} ${name}${of.is_damaged ? ', and bytes that are no messages' : ''}`;
  return el('section', {}, isOne ? el('p', { class: 'calm', text: title }) : el('h3', { text: title }),
    el('ul', { class: 'messages' }, ...rows.map(entry)),
    isOne && first && !of.is_stream ? el('p', { class: 'pages' }, to('Newest', {}), to('Older', { before: first.position }), to('Newer', { from: last.end })) : null);
}

/** The form that publishes. */
function form(topic, done) {
  const told = el('div', { 'aria-live': 'polite' });
  const text = el('textarea', { id: 'text', rows: 3, required: true, spellcheck: 'false' });
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
    if (document.activeElement === document.body) button.focus();
  } }, el('label', { for: 'text', text: `One message to ${plain(topic)}` }), text, button, told);
}

/** The page of messages. */
export function messages({ main, parameters, session, once, state }) {
  const of = (name) => parameters.get(name) || '';
  const topic = of('topic');
  const name = el('input', { type: 'search', id: 'search', placeholder: 'Name of a topic', 'aria-label': 'Name of a topic', value: topic, maxlength: 255 });
  const many = el('select', { id: 'count', 'aria-label': 'How many' }, ...['10', '30', '100'].map((n) => el('option', { value: n, text: `${n} messages`, selected: n === (of('count') || '10') })));
  const only = el('input', { id: 'only', placeholder: 'Only with this text', 'aria-label': 'Only with this text', value: of('search'), maxlength: 255 });
  const since = el('input', { type: 'datetime-local', id: 'since', step: 1, 'aria-label': 'From this time on, for topics on the disk' });
  const list = el('div', { id: 'list', 'aria-live': 'polite' });
  const here = (more) => address('#/messages', { topic: name.value, count: many.value, search: only.value, ...more });
  const go = (more) => {
    const to = here(more);
    if (to === location.hash) read();
    else location.hash = to;
  };
  const read = async () => {
    if (!topic) return;
    const path = address('/messages', { topic, count: of('count'), search: of('search'), before: of('before'), from: of('from'), time: of('time') });
    const found = await once(path);
    if (!found) return show(list);
    const logs = found.logs.filter(({ rows }) => rows.length);
    const isCut = found.logs.some((own) => own.is_cut);
    const none = of('search') ? 'No message of this part has this text.' : 'The broker has no message here. This command publishes one:';
    return show(list, found.space ? el('p', { class: 'calm', text: `The topic is in the space ${plain(found.space)}, with other topics.` }) : null,
      logs.length ? null : empty(none, of('search') ? null : `echo hello | rbmq pub ${quoted(topic)}`),
      ...logs.map((own) => log(own, found.logs.length === 1, (text, more) => el('a', { href: here(more), text }))),
      isCut && of('search') ? el('p', { class: 'calm', text: 'Not everything was searched: a search looks through a few MiB.' }) : null,
      found.is_cut ? el('p', { class: 'calm', text: 'The topic has more publishers; these are the newest.' }) : null);
  };
  const isNewest = !['before', 'from', 'time'].some(of);
  const submit = (event) => {
    event.preventDefault();
    go(since.value ? { time: new Date(since.value).getTime() } : {});
  };
  many.addEventListener('change', submit);
  show(main, el('h2', { text: 'Messages' }),
    el('form', { class: 'tools', submit }, name, many, only, el('label', { class: 'choice' }, 'From', since), el('button', { class: 'main', type: 'submit', text: 'Show' })),
    topic && session.may_observe ? el('p', {}, topicLink(topic)) : null,
    topic && session.may_publish ? form(topic, isNewest ? read : () => go({})) : null,
    topic ? null : el('p', { class: 'calm', text: 'A look holds no publisher, and is no subscriber.' }), list);
  state('still');
  read();
}
