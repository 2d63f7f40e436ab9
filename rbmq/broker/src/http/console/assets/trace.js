// A trace: what one client or one topic does for a minute, live, and as a file of JSON lines.

import { address, ask } from '/ui/live.js';
import { count, el, plain, plural, show, table, tag, trouble, update } from '/ui/parts.js';

const EVERY = 1000;
/** The most rows of an answer. */
const MOST = 500;
/** A broker that cannot answer now is asked again, up to this long after the end of the trace. */
const PATIENCE = 10000;

/** The most rows of the page. The file has more. */
const SHOWN = 200;
/** The most events that the page keeps for the file. */
const KEPT = 20000;

const clock = (ms) => new Date(ms).toISOString().slice(11, 23);

const BAD = ['refused', 'cut', 'lost', 'too slow', 'the publisher waits', 'lost before the broker', 'disconnected'];

const columns = [
  ['Time (UTC)', (row) => clock(row.time_ms), 'first'],
  ['Event', (row) => (BAD.includes(row.what) ? tag(row.what, 'warn') : row.what)],
  ['Client', (row) => (row.client ? el('span', { class: 'name', text: plain(row.client) }) : '–')],
  ['Topic', (row) => (row.topic ? el('span', { class: 'name', text: plain(row.topic) }) : '–')],
  ['Numbers', (row) => Object.entries(row.numbers).map(([name, value]) => `${name.replaceAll('_', ' ')} ${count(value)}`).join(', ') || '–'],
  ['Why', (row) => (row.text ? plain(row.text) : '–')],
];

/** The link to the trace of something, for those who may. */
export const traceLink = (session, of) => (session.may_administer ? el('a', { href: address('#/trace', of), text: 'Trace' }) : null);

/** A file of JSON lines with all events that the page has. */
function save(rows) {
  const url = URL.createObjectURL(new Blob(rows.map((row) => `${JSON.stringify(row)}\n`), { type: 'application/x-ndjson' }));
  const link = el('a', { href: url, download: 'rbmq-trace.jsonl' });
  link.click();
  URL.revokeObjectURL(url);
}

/** The trace of a client (conn) or of a topic (topic). */
export function trace({ main, parameters, state, failed }) {
  const of = { conn: parameters.get('conn'), topic: parameters.get('topic') };
  let rows = [];
  let after = 0;
  let gone = 0;
  let isRunning = false;
  // Somebody else's, or that of this page before it was loaded again.
  let isOther = false;
  let until = 0;
  let timer = null;
  // The number of the last request: what others answer is not shown any more.
  let last = 0;
  const list = el('div', { id: 'list' });
  const note = el('div', { id: 'note' });
  const told = el('span', { id: 'told', role: 'status' });
  const left = el('span');
  // A button that nobody can press keeps the keyboard.
  const set = (node, is) => node.setAttribute('aria-disabled', String(!is));
  const button = (id, text, press, is, kind) => {
    const node = el('button', { id, class: kind, text, 'aria-disabled': String(!is), click: () => { if (node.getAttribute('aria-disabled') === 'false') press(); } });
    return node;
  };
  const begin = button('begin', 'Trace for a minute', () => press(start), true, 'main');
  const end = button('end', 'End', () => press(stop), false);
  const file = button('save', 'Download', () => save(rows), false);
  const offer = () => {
    set(begin, !isRunning);
    set(end, isRunning || isOther);
    set(file, rows.length);
  };
  const draw = (look) => {
    rows = rows.concat(look.rows).slice(-KEPT);
    gone += look.dropped;
    [after, isRunning, isOther, until] = [look.next, look.is_running, false, performance.now() + look.left_ms + PATIENCE];
    offer();
    show(note);
    const now = isRunning ? 'Runs' : 'Ended';
    if (told.textContent !== now) told.textContent = now;
    left.textContent = `${isRunning ? ` for ${Math.ceil(look.left_ms / 1000)} s more` : ''}: ${plural(rows.length, 'event')}${gone ? `, and ${count(gone)} that were too many` : ''}${look.is_cut ? '; it has more rings, subscribers or connections than a trace looks at' : ''}.`;
    update(list, rows.length ? table('Events, the newest first', columns, rows.slice(-SHOWN).reverse()) : null);
    state(isRunning ? 'live' : 'still');
    const isFull = look.rows.length >= MOST;
    if (isRunning || isFull) timer = setTimeout(() => act(read), isFull ? 0 : EVERY);
  };
  const act = async (what) => {
    last += 1;
    const own = last;
    clearTimeout(timer);
    try {
      const look = await what();
      if (own !== last) return;
      draw(look);
      if (what === stop) clearTimeout(timer);
    } catch (why) {
      if (own !== last) return;
      state('off');
      if (why.status === 401) return failed(why);
      show(note, trouble(plain(why.message)));
      isRunning = isRunning && [0, 429, 503].includes(why.status) && performance.now() < until;
      if (isRunning) timer = setTimeout(() => act(read), EVERY);
      if (why.status === 409) [isOther, after] = [true, null];
      offer();
    }
    return null;
  };
  const press = (what) => {
    set(begin, false);
    set(end, false);
    act(what);
  };
  const forget = () => ask('/trace', { method: 'DELETE' }).catch(() => {});
  const start = async () => {
    const own = last;
    const look = await ask(address('/trace', of), { method: 'POST' });
    if (own === last) [rows, gone] = [[], 0];
    else forget();
    return look;
  };
  const read = () => ask(address('/trace', { after }));
  const stop = () => ask(address('/trace', { after }), { method: 'DELETE' });
  show(main, el('p', {}, el('a', { href: of.topic ? address('#/topic', { name: of.topic }) : address('#/client', { conn: of.conn }), text: of.topic ? '‹ Topic' : '‹ Client' })),
    el('h2', { class: 'name', text: `Trace of ${of.topic ? plain(of.topic) : `connection ${plain(of.conn || '')}`}` }),
    el('p', { class: 'calm', text: 'What it asks, is refused, has, loses and waits for. Messages and their contents are not in a trace.' }),
    el('p', { class: 'pair' }, begin, end, file), el('p', { class: 'calm' }, told, left), note, list);
  state('still');
  return () => {
    last += 1;
    clearTimeout(timer);
    if (isRunning) forget();
  };
}
