// The first page: is it well?

import { ask } from '/ui/live.js';
import { bytes, count, el, empty, meter, plain, rate, show, svg, table, tag, time, topicLink } from '/ui/parts.js';

const fact = (title, value, more, bar) => el('div', {}, el('dt', { text: title }), el('dd', {}, value, more ? el('small', { text: ` ${more}` }) : null, bar || null));

function well(alarms) {
  if (alarms.length === 0) return el('p', { class: 'well good', role: 'status', text: 'All is well.' });
  return el('section', { 'aria-label': 'Alarms' }, ...alarms.map((alarm) => el('article', { class: `alarm ${alarm.level}` },
    el('h3', {}, tag(alarm.level === 'bad' ? 'bad' : 'warning', alarm.level === 'bad' ? 'bad' : 'warn'), ` ${alarm.title}`),
    el('p', { text: plain(alarm.reason) }), el('p', { class: 'calm', text: alarm.remedy }))));
}

function facts({ summary, rates, max_lag_bytes: lag, kept, cluster_members: members, gateways, groups }) {
  const share = summary.max_ring_bytes ? summary.ring_bytes / summary.max_ring_bytes : 0;
  const clients = gateways.reduce((sum, gateway) => sum + gateway.connections, 0);
  return el('dl', { class: 'facts' },
    fact('From publishers', rate(rates.in_bytes_per_s)), fact('To subscribers', rate(rates.out_bytes_per_s)),
    fact('Lost by slow subscribers', rate(rates.lost_bytes_per_s), `${bytes(summary.dropped_bytes)} in all`),
    fact('Largest lag', bytes(lag)),
    fact('Publishers', count(summary.publishers)), fact('Subscribers', count(summary.subscribers)),
    fact('Topics', count(summary.topics)),
    fact('Memory of rings', bytes(summary.ring_bytes), `of ${bytes(summary.max_ring_bytes)}`,
      meter(share, `${Math.round(share * 100)} % of the memory for rings`, share > 0.9 ? 'bad' : '')),
    fact('Kept on disk', bytes(kept.file_bytes), kept.topics ? `${count(kept.topics)} topics` : 'no topics'),
    kept.topics ? fact('Not synced yet', bytes(kept.unsynced_bytes)) : null,
    kept.archive_lag_bytes ? fact('Archive is behind', bytes(kept.archive_lag_bytes)) : null,
    kept.replays ? fact('Replays', count(kept.replays), kept.waiting_replays ? `${count(kept.waiting_replays)} wait` : '') : null,
    groups.groups ? fact('Groups of workers', count(groups.groups), `${bytes(groups.max_lag_bytes)} the largest lag`) : null,
    gateways.length ? fact('Clients of gateways', count(clients)) : null,
    members != null ? fact('Members', count(members)) : null,
    fact('Up for', time(summary.uptime_ms), `RBMQ ${plain(summary.version)}`));
}

const WIDE = 600;
const HIGH = 120;

/** A curve of the last hour. */
function plot(title, points, lines) {
  const figure = el('figure', {}, el('figcaption', {}, el('b', { text: title }),
    ...lines.map(([name, of, show_], at) => el('span', { class: `line-${at}`, text: `${name} ${points.length ? show_(of(points.at(-1))) : ''}` }))));
  if (points.length < 2) {
    figure.append(el('p', { class: 'calm', text: 'The curve begins now, and grows while this page is open.' }));
    return figure;
  }
  const [from, to] = [points[0].time_ms, points.at(-1).time_ms];
  const most = Math.max(1, ...points.flatMap((point) => lines.map(([, of]) => of(point) || 0)));
  const picture = svg('svg', { viewBox: `0 0 ${WIDE} ${HIGH}`, preserveAspectRatio: 'none', role: 'img', 'aria-label': `${title}, the last ${time(to - from)}` });
  lines.forEach(([, of], at) => {
    const path = points.map((point) => `${((point.time_ms - from) / (to - from || 1) * WIDE).toFixed(1)},${(HIGH - 4 - (of(point) || 0) / most * (HIGH - 8)).toFixed(1)}`);
    picture.append(svg('polyline', { points: path.join(' '), class: `line-${at}` }));
  });
  figure.append(picture, el('p', { class: 'calm ends' }, el('span', { text: `${time(to - from)} ago` }), el('span', { text: `most: ${lines[0][2](most)}` }), el('span', { text: 'now' })));
  return figure;
}

function gateways(rows) {
  return table('Gateways', [
    ['Gateway', (row) => plain(row.gateway), 'first'],
    ['State', (row) => (row.is_serving ? tag('serves', 'good') : tag('stopped', 'bad'))],
    ['Clients', (row) => count(row.connections), 'n'], ['Messages in', (row) => count(row.messages_in), 'n'],
    ['Messages out', (row) => count(row.messages_out), 'n'], ['Lost', (row) => count(row.dropped), 'n'],
    ['Logins refused', (row) => count(row.logins_refused), 'n'],
  ], rows);
}

function slow(rows) {
  return table('The slowest topics', [
    ['Topic', (row) => topicLink(row.topic), 'first'],
    ['Lag', (row) => bytes(row.max_lag_bytes), 'n'],
    ['In', (row) => rate(row.in_bytes_per_s), 'n'],
    ['Slowest subscriber', (row) => el('span', { class: 'pair' }, el('span', { class: 'cut', text: plain(row.slowest?.name ?? '–') }),
      row.slowest?.blocks_publisher ? tag('holds publishers', 'warn') : null)],
  ], rows);
}

/** The overview. */
export function overview({ main, follow }, fresh) {
  if (fresh || !main.querySelector('#state')) {
    show(main, el('h2', { class: 'unseen', text: 'Overview' }), el('div', { id: 'state' }), el('div', { id: 'plots', class: 'plots' }), el('div', { id: 'more' }));
  }
  const plots = async () => {
    let points;
    try { ({ points } = await ask('/history')); } catch { return; }
    show(main.querySelector('#plots') || document.createElement('div'),
      plot('Bytes per second', points, [['in', (p) => p.in_bytes_per_s, rate], ['out', (p) => p.out_bytes_per_s, rate]]),
      plot('Largest lag', points, [['lag', (p) => p.max_lag_bytes, bytes]]));
  };
  plots();
  const timer = setInterval(() => { if (!document.hidden) plots(); }, 10000);
  const stop = follow('/overview', (value) => {
    show(main.querySelector('#state'), well(value.alarms), facts(value));
    const isNew = value.summary.topics === 0;
    show(main.querySelector('#more'),
      isNew ? empty('No topics yet. This command publishes a message:', 'echo hello | rbmq pub news') : el('h3', { text: 'Who is slow' }),
      isNew ? null : value.slowest.length ? slow(value.slowest) : el('p', { class: 'calm', text: 'Nobody: every subscriber has everything.' }),
      value.gateways.length ? el('h3', { text: 'Gateways' }) : null, value.gateways.length ? gateways(value.gateways) : null,
      value.limits.length ? el('h3', { text: 'Near a quota' }) : null,
      value.limits.length ? table('Near a quota', [
        ['Who', (row) => plain(row.who), 'first'], ['Quota', (row) => row.resource], ['Used', (row) => count(row.used), 'n'], ['Limit', (row) => count(row.limit), 'n'],
        ['', (row) => (row.at_limit ? tag('used up', 'warn') : '')],
      ], value.limits) : null);
  });
  return () => { clearInterval(timer); stop(); };
}
