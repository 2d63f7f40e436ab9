// One topic: the picture of its rings, and the cursors in them.
//
// A ring is drawn as one: a position has the angle of its place in the memory, and the publisher runs around. The coloured arc is what the
// slowest subscriber has not got yet. Where the publisher would meet it, it waits, or the subscriber loses bytes, as its policy says.

import { traceLink } from '/ui/trace.js';
import { bytes, count, el, meter, plain, plural, quoted, rate, show, svg, table, tag, time, update } from '/ui/parts.js';

const SIZE = 260;
const MIDDLE = SIZE / 2;
const RADIUS = 96;

/** The most cursors of a picture. The table has more. */
const DRAWN = 24;

const REASONS = { too_few_subscribers: 'it has fewer subscribers than its publisher asks for', merge_table_full: 'its table of publishers is full', disk: 'the disk has no room, or fails' };

const point = (turn, radius) => {
  const angle = turn * 2 * Math.PI - Math.PI / 2;
  return [MIDDLE + radius * Math.cos(angle), MIDDLE + radius * Math.sin(angle)].map((n) => n.toFixed(2));
};

/** An arc from one position to another. */
function arc(ring, from, to, kind) {
  const length = Math.min(to - from, ring.capacity_bytes);
  if (length <= 0 || !ring.capacity_bytes) return null;
  const share = Math.min(length / ring.capacity_bytes, 0.9999);
  const begin = ((to - length) % ring.capacity_bytes) / ring.capacity_bytes;
  const [[x, y], [u, v]] = [point(begin, RADIUS), point(begin + share, RADIUS)];
  return svg('path', { d: `M ${x} ${y} A ${RADIUS} ${RADIUS} 0 ${share > 0.5 ? 1 : 0} 1 ${u} ${v}`, class: `arc ${kind}` });
}

function cursor(ring, sub, at) {
  const turn = (sub.landed % ring.capacity_bytes) / ring.capacity_bytes;
  const [x, y] = point(turn, RADIUS - 22);
  const [u, v] = point(turn, RADIUS - 11);
  const kind = holds(ring, sub) ? 'bad' : sub.offline ? 'offline' : '';
  const title = svg('title');
  title.textContent = `${name(sub)}: ${bytes(ring.head - sub.landed)} behind`;
  return svg('g', { class: `cursor ${kind}` }, title, svg('line', { x1: x, y1: y, x2: u, y2: v }),
    at < 3 ? svg('circle', { cx: x, cy: y, r: 4 }) : null);
}

const name = (sub) => plain(sub.client || sub.name || sub.address || `connection ${sub.conn}`);

/** Whether the ring retains more for a subscription than the history. */
const holds = (ring, sub) => sub.retains_from != null && sub.retains_from < ring.head - ring.retain_bytes;

function picture(ring) {
  const [head, slow] = [ring.head, ring.subscriptions[0]];
  const behind = slow ? head - slow.landed : 0;
  const label = `A ring of ${bytes(ring.capacity_bytes)}, ${bytes(ring.head - ring.tail)} of it in use. ${slow ? `The slowest of ${count(ring.subscribers + ring.offline)} cursors, ${name(slow)}, is ${bytes(behind)} behind.` : 'No subscriber.'}`;
  const turn = ring.capacity_bytes ? (head % ring.capacity_bytes) / ring.capacity_bytes : 0;
  const [x, y] = point(turn, RADIUS);
  const middle = (text, dy, kind) => {
    const node = svg('text', { x: MIDDLE, y: MIDDLE + dy, class: kind });
    node.textContent = text;
    return node;
  };
  return svg('svg', { viewBox: `0 0 ${SIZE} ${SIZE}`, class: 'ring', role: 'img', 'aria-label': label },
    svg('circle', { cx: MIDDLE, cy: MIDDLE, r: RADIUS, class: 'arc room' }),
    arc(ring, ring.tail, head, 'used'),
    slow && arc(ring, slow.landed, head, holds(ring, slow) ? 'held' : 'lag'),
    ...ring.subscriptions.slice(0, DRAWN).map((sub, at) => cursor(ring, sub, at)),
    svg('circle', { cx: x, cy: y, r: 8, class: 'head' }),
    middle(bytes(ring.capacity_bytes), -2, 'large'), middle(plural(ring.subscribers + ring.offline, 'cursor'), 18, 'small'));
}

const legend = () => el('ul', { class: 'legend' }, ...[['head', 'publisher'], ['used', 'in the ring'], ['lag', 'not yet at the slowest'], ['held', 'held for the slowest'], ['room', 'free']]
  .map(([kind, text]) => el('li', { class: kind, text })));

function facts(ring) {
  const stage = { opening: 'opening', live: 'live', closed: 'closed, readable', gone: 'gone, readable' }[ring.stage];
  const rows = [
    ['Publisher', ring.publisher ? plain(ring.publisher) : 'unnamed'], ['Address', plain(ring.address || '–')],
    ['State', ring.stage === 'live' && !ring.connected ? 'disconnected' : stage],
    ['Head', count(ring.head)], ['Oldest position', count(ring.tail)], ['May write to', count(ring.horizon)],
    ['Received', bytes(ring.received_bytes)], ['Delivered', bytes(ring.delivered_bytes)], ['Lost', bytes(ring.dropped_bytes)],
    ['History', bytes(ring.retain_bytes)], ['Framing', ring.framing], ['Log', ring.epoch],
  ];
  if (ring.max_table_entries) rows.push(['Table of publishers', `${count(ring.table_entries)} of ${count(ring.max_table_entries)}`]);
  if (ring.min_subscribers) rows.push(['Subscribers needed', `${count(ring.receivers)} of ${count(ring.min_subscribers)}`]);
  return el('dl', { class: 'list' }, ...rows.map(([title, text]) => el('div', {}, el('dt', { text: title }), el('dd', { text: String(text) }))));
}

const subscriptions = (ring) => table('Subscribers, the slowest first', [
  ['Subscriber', (sub) => el('span', { class: 'name', text: name(sub) }), 'first'],
  ['Policy', (sub) => el('span', { class: 'pair' }, tag(sub.policy), sub.offline ? tag('offline') : null, holds(ring, sub) ? tag('holds the publisher', 'warn') : null)],
  ['Lag', (sub) => el('span', { class: 'pair' }, el('span', { class: 'number', text: bytes(ring.head - sub.landed) }),
    meter((ring.head - sub.landed) / (ring.capacity_bytes || 1), `lag of ${bytes(ring.head - sub.landed)}`, holds(ring, sub) ? 'bad' : '')), 'lag'],
  ['Has', (sub) => count(sub.landed), 'n'],
  ['Consumed', (sub) => count(sub.consumed), 'n'],
  ['Lost', (sub) => bytes(sub.dropped_bytes), 'n'],
  ['Idle', (sub) => (ring.head > sub.consumed ? time(sub.idle_ms) : '–'), 'n'],
  ['Address', (sub) => (sub.offline ? `kept for ${time(sub.expires_in_ms)}` : plain(sub.address))],
], ring.subscriptions);

/** The page of a topic. */
export function topic({ main, parameters, follow, session }, fresh) {
  const wanted = parameters.get('name') || '';
  if (fresh) show(main, el('p', { class: 'pair' }, el('a', { href: '#/topics', text: '‹ Topics' }), el('a', { href: `#/messages?topic=${encodeURIComponent(wanted)}`, text: 'Messages' }), traceLink(session, { topic: wanted }) || ''), el('h2', { class: 'name', text: plain(wanted) }), el('div', { id: 'rings' }));
  return follow(`/topic?name=${encodeURIComponent(wanted)}`, ({ row, buffers, is_cut: isCut }) => {
    const waits = row?.blocked_by && el('p', { class: 'note', text: `Publishers wait: ${REASONS[row.blocked_by] || row.blocked_by}.` });
    const sums = el('dl', { class: 'facts' }, ...[['In', rate(row?.in_bytes_per_s)], ['Out', rate(row?.out_bytes_per_s)], ['Lost', rate(row?.lost_bytes_per_s)],
      ['Largest lag', bytes(row?.max_lag_bytes)], ['Subscribers', count(row?.subscribers)]].map(([title, text]) => el('div', {}, el('dt', { text: title }), el('dd', { text }))));
    const rings = buffers.map((ring) => el('section', { class: 'card ringcard' }, el('div', { class: 'both' }, el('div', {}, picture(ring), legend()), facts(ring)),
      ring.subscriptions.length ? subscriptions(ring) : el('p', { class: 'calm' }, 'Nobody subscribes. This command does: ', el('code', { text: `rbmq sub ${quoted(wanted)}` })),
      ring.subscriptions_are_cut ? el('p', { class: 'calm', text: 'There are more subscribers; these are the slowest.' }) : null));
    update(main.querySelector('#rings'), waits || null, sums, ...rings, isCut ? el('p', { class: 'calm', text: 'The topic has more rings than these.' }) : null);
  });
}
