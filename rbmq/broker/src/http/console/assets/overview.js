// The first page: is it well?

import { ask } from '/ui/live.js';
import { bytes, count, el, empty, meter, plain, plural, rate, show, table, tag, time, topicLink, update } from '/ui/parts.js';
import { Plot, binary } from '/ui/plot.js';

const fact = (title, value, more, bar) => el('div', {}, el('dt', { text: title }), el('dd', {}, value.replace(' ', '\u00a0'), more ? ' ' : null, more ? el('small', { text: more }) : null, bar || null));

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
    fact('Kept on disk', bytes(kept.file_bytes), kept.topics ? plural(kept.topics, 'topic') : 'no topics'),
    kept.topics ? fact('Not synced yet', bytes(kept.unsynced_bytes)) : null,
    kept.archive_lag_bytes ? fact('Archive is behind', bytes(kept.archive_lag_bytes)) : null,
    kept.replays ? fact('Replays', count(kept.replays), kept.waiting_replays ? `${count(kept.waiting_replays)} wait` : '') : null,
    groups.groups ? fact('Groups of workers', count(groups.groups), `${bytes(groups.max_lag_bytes)} the largest lag`) : null,
    gateways.length ? fact('Clients of gateways', count(clients)) : null,
    members != null ? fact('Members', count(members)) : null,
    fact('Up for', time(summary.uptime_ms), `RBMQ ${plain(summary.version)}`));
}

/** The times that a plot may show, in milliseconds. */
const SPANS = [60_000, 300_000, 600_000, 1_800_000, 3_600_000];

const curve = (name, of) => ({ name, of: (point) => of(point) || 0 });

/** The curves of the last hour. */
function curves([rates, lag]) {
  const plots = [
    new Plot(rates, 'Bytes per second', (n, short) => (short ? bytes(n) : rate(n)), [curve('in', (p) => p.in_bytes_per_s), curve('out', (p) => p.out_bytes_per_s)], binary),
    new Plot(lag, 'Largest lag', bytes, [curve('lag', (p) => p.max_lag_bytes)], binary),
  ];
  return async () => {
    let points;
    try { ({ points } = await ask('/history')); } catch { return; }
    const samples = points.map((own) => ({ ...own, unix_ms: own.time_ms }));
    const passed = samples.length ? samples.at(-1).unix_ms - samples[0].unix_ms : 0;
    plots.forEach((own) => own.set(samples, SPANS.find((span) => span >= passed) ?? SPANS.at(-1)));
  };
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
export function overview({ main, follow }) {
  const figures = [el('figure'), el('figure')];
  show(main, el('h2', { class: 'unseen', text: 'Overview' }), el('div', { id: 'state' }), el('div', { class: 'plots', hidden: true }, ...figures), el('div', { id: 'more' }));
  const plots = curves(figures);
  plots();
  const timer = setInterval(() => { if (!document.hidden) plots(); }, 10000);
  const stop = follow('/overview', (value) => {
    update(main.querySelector('#state'), well(value.alarms), facts(value));
    main.querySelector('.plots').hidden = false;
    const isNew = value.summary.topics === 0;
    update(main.querySelector('#more'),
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
