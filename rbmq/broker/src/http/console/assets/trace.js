// A trace: what one client or one topic does for a minute, live, and as a file of JSON lines.

import { address, ask } from '/ui/live.js';
import { count, el, plain, plural, show, table, tag, trouble } from '/ui/parts.js';

const EVERY = 1000;

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
  let over = false;
  let timer = null;
  const list = el('div', { id: 'list' });
  const told = el('p', { class: 'calm', id: 'told' });
  const begin = el('button', { id: 'begin', class: 'main', text: 'Trace for a minute', click: () => act(start) });
  const end = el('button', { id: 'end', text: 'End', disabled: true, click: () => act(stop) });
  const file = el('button', { id: 'save', text: 'Download', disabled: true, click: () => save(rows) });
  const draw = (look) => {
    rows = rows.concat(look.rows).slice(-KEPT);
    gone += look.dropped;
    after = look.next;
    begin.disabled = look.is_running;
    end.disabled = !look.is_running;
    file.disabled = !rows.length;
    told.textContent = `${look.is_running ? `Runs for ${Math.ceil(look.left_ms / 1000)} s more` : 'Has ended'}: ${plural(rows.length, 'event')}${gone ? `, and ${count(gone)} that were too many` : ''}${look.is_cut ? '; it has more rings than a trace looks at' : ''}.`;
    show(list, rows.length ? table('Events, the newest first', columns, rows.slice(-SHOWN).reverse()) : null);
    state(look.is_running ? 'live' : 'still');
    clearTimeout(timer);
    if (!over && (look.is_running || look.rows.length)) timer = setTimeout(() => act(read), look.rows.length >= 500 ? 0 : EVERY);
  };
  const act = async (what) => {
    try {
      await what();
    } catch (why) {
      if (over) return;
      state('off');
      begin.disabled = false;
      end.disabled = true;
      if (why.status === 401) failed(why);
      else show(list, trouble(plain(why.message)));
    }
  };
  const start = async () => {
    [rows, after, gone] = [[], 0, 0];
    begin.disabled = true;
    draw(await ask(address('/trace', of), { method: 'POST' }));
  };
  const read = async () => { const look = await ask(address('/trace', { after })); if (!over) draw(look); };
  const stop = async () => { await ask('/trace', { method: 'DELETE' }); clearTimeout(timer); begin.disabled = false; end.disabled = true; told.textContent = `Ended: ${plural(rows.length, 'event')}.`; state('still'); };
  show(main, el('p', {}, el('a', { href: of.topic ? address('#/topic', { name: of.topic }) : address('#/client', { conn: of.conn }), text: of.topic ? '‹ Topic' : '‹ Client' })),
    el('h2', { class: 'name', text: `Trace of ${of.topic ? plain(of.topic) : `connection ${plain(of.conn || '')}`}` }),
    el('p', { class: 'calm', text: 'What it asks, is refused, has, loses and waits for. Messages and their contents are not in a trace.' }),
    el('p', { class: 'pair' }, begin, end, file), told, list);
  state('still');
  return () => {
    over = true;
    clearTimeout(timer);
    if (!end.disabled) ask('/trace', { method: 'DELETE' }).catch(() => {});
  };
}
