// The pages that are lists: topics, clients, kept topics, members, settings. The broker searches, sorts and cuts them.

import { address } from '/ui/live.js';
import { bytes, count, el, empty, meter, plain, plural, quoted, rate, show, table, tag, time, topicLink, update } from '/ui/parts.js';
import { reload } from '/ui/reload.js';

const ROWS = 50;

/** A page with a search, some choices, a table, and the pages before and after. */
export function list({ main, parameters, move, follow, once }, fresh, { title, path, choices = [], search, columns, nothing, live = true, paged = live, above }) {
  const own = Object.fromEntries(parameters);
  const offset = Number(own.offset) || 0;
  if (fresh || !main.querySelector('#list')) {
    const find = el('input', { type: 'search', id: 'search', placeholder: search, 'aria-label': search, value: own.search || '', maxlength: 255 });
    let wait;
    find.addEventListener('input', () => {
      clearTimeout(wait);
      wait = setTimeout(() => set('search', find.value), 200);
    });
    const choose = choices.map(([name, label, words]) => {
      const select = el('select', { id: name, change: () => set(name, select.value) },
        ...words.map(([value, text]) => el('option', { value, text, selected: (own[name] || words[0][0]) === value })));
      return el('label', { class: 'choice' }, el('span', { text: label }), select);
    });
    show(main, el('h2', { text: title }), above ? above() : null, el('div', { class: 'tools' }, find, ...choose), el('div', { id: 'list' }));
  }
  const set = (name, value) => {
    // As the address is now: the fields stay when the list changes.
    const now = new URLSearchParams(location.hash.split('?')[1] || '');
    now.set(name, value);
    if (name !== 'offset') now.delete('offset');
    move(now);
  };
  const draw = (value) => {
    if (!value) return;
    const { rows, total, matched, is_cut: isCut } = value;
    // The keyboard stays where it is also at the end of a list.
    const turn = (to, text) => {
      const isThere = to >= 0 && to < matched;
      return el('button', { id: text, class: 'small', text, 'aria-disabled': String(!isThere), click: () => { if (isThere) set('offset', String(to)); } });
    };
    const some = matched === total ? plural(total, 'row') : `${count(matched)} of ${plural(total, 'row')}`;
    const pages = paged && (matched > ROWS || offset > 0) && el('p', { class: 'pages' },
      turn(offset > 0 ? Math.max(0, offset - ROWS) : -1, 'Previous'), ` ${count(Math.min(offset + 1, matched))} to ${count(offset + rows.length)} `,
      turn(offset + ROWS, 'Next'));
    update(main.querySelector('#list'), el('p', { class: 'calm', text: some }),
      isCut ? el('p', { class: 'note', text: 'The broker has more than these: too many, or it answers too slowly.' }) : null,
      total === 0 ? nothing() : matched === 0 ? empty('Nothing matches.') : table(title, columns, rows), pages || null);
  };
  const asked = address(path, paged ? { ...own, limit: ROWS } : own);
  if (live) return follow(asked, draw);
  once(asked).then(draw);
  return null;
}

function slowest({ slowest: slow }) {
  if (!slow) return '–';
  const node = el('span', { class: 'pair' }, el('span', { class: 'cut', text: plain(slow.name) }), tag(slow.policy));
  if (slow.offline) node.append(tag('offline'));
  if (slow.blocks_publisher) node.append(tag('holds publishers', 'warn'));
  return node;
}

function lag(row) {
  const ring = row.slowest?.ring_bytes || row.ring_bytes;
  return el('span', { class: 'pair' }, el('span', { class: 'number', text: bytes(row.max_lag_bytes) }),
    meter(ring ? row.max_lag_bytes / ring : 0, `lag of ${bytes(row.max_lag_bytes)}`, row.slowest?.blocks_publisher ? 'bad' : ''));
}

/** All topics. */
export const topics = (tools, fresh) => list(tools, fresh, {
  title: 'Topics', path: '/topics', search: 'Search topics',
  choices: [['sort', 'Order', [['lag', 'slowest first'], ['rate', 'fastest first'], ['name', 'by name'], ['ring', 'largest ring first'], ['lost', 'most losses first']]]],
  columns: [
    ['Topic', (row) => topicLink(row.topic), 'first'],
    ['In', (row) => rate(row.in_bytes_per_s), 'n'],
    ['Out', (row) => rate(row.out_bytes_per_s), 'n'],
    ['Publishers', (row) => count(row.publishers), 'n'],
    ['Subscribers', (row) => count(row.subscribers + row.offline), 'n'],
    ['Ring', (row) => bytes(row.ring_bytes), 'n'],
    ['Lost', (row) => (row.dropped_bytes ? tag(bytes(row.dropped_bytes), 'warn') : '0 B'), 'n'],
    ['Lag', lag, 'lag'],
    ['Slowest', slowest],
  ],
  nothing: () => empty('No topics yet. This command publishes a message:', 'echo hello | rbmq pub news'),
});

/** A link to a client. */
export const clientLink = (row) => el('a', { href: `#/client?conn=${row.conn}`, class: row.name ? 'name' : 'calm', text: row.name ? plain(row.name) : 'unnamed' });

/** All clients. */
export const clients = (tools, fresh) => list(tools, fresh, {
  title: 'Clients', path: '/clients', search: 'Search names, users, addresses',
  choices: [
    ['role', 'Show', [['all', 'all'], ['publisher', 'publishers'], ['subscriber', 'subscribers'], ['observer', 'observers'], ['broker', 'brokers'], ['gateway', 'gateways']]],
    ['sort', 'Order', [['lag', 'slowest first'], ['name', 'by name'], ['subscriptions', 'most subscriptions first'], ['connection', 'oldest first']]],
  ],
  columns: [
    ['Client', clientLink, 'first'],
    ['Role', (row) => el('span', { class: 'pair' }, tag(row.role), row.connected ? null : tag('disconnected', 'warn'))],
    ['User', (row) => (row.user ? `${plain(row.user)} (${row.method})` : '–')],
    ['Address', (row) => plain(row.address)],
    ['Publishes', (row) => (row.buffers ? plural(row.buffers, 'topic') : '–'), 'n'],
    ['Subscriptions', (row) => (row.subscriptions ? count(row.subscriptions) : '–'), 'n'],
    ['Largest lag', (row) => (row.subscriptions ? bytes(row.max_lag_bytes) : '–'), 'n'],
    ['Lost', (row) => (row.subscriptions ? bytes(row.dropped_bytes) : '–'), 'n'],
  ],
  nothing: () => empty('No clients are connected. This command subscribes to everything:', "rbmq sub '#'"),
});

function retention({ keep_bytes: size, keep_ms: age }) {
  const parts = [size != null && bytes(size), age != null && time(age)].filter(Boolean);
  return parts.length ? parts.join(', ') : 'default';
}

function archive({ archive: own }) {
  if (!own) return '–';
  const text = own.is_failing ? 'failing' : own.lag_bytes ? `${bytes(own.lag_bytes)} behind` : 'has all';
  return tag(text, own.is_failing ? 'bad' : own.lag_bytes ? '' : 'good');
}

/** The topics on disk. */
export const kept = (tools, fresh) => list(tools, fresh, {
  title: 'Kept topics', path: '/kept', search: 'Search topics',
  choices: [['sort', 'Order', [['size', 'largest first'], ['name', 'by name']]]],
  columns: [
    ['Topic', (row) => topicLink(row.topic), 'first'],
    ['On disk', (row) => bytes(row.file_bytes), 'n'],
    ['First position', (row) => count(row.first), 'n'],
    ['End', (row) => count(row.end), 'n'],
    ['Not synced', (row) => bytes(row.unsynced_bytes), 'n'],
    ['Retention', retention],
    ['Archive', archive],
    ['State', (row) => (row.is_failing ? tag('disk fails', 'bad') : row.damaged_bytes ? tag(`${bytes(row.damaged_bytes)} damaged`, 'warn') : tag('well', 'good'))],
    ['Replay', (row) => el('code', { text: `rbmq sub --from ${row.first} ${quoted(row.topic)}` })],
  ],
  nothing: () => empty('No topic is kept on disk. This command keeps all topics:', 'rbmq serve --keep ./kept'),
});

/** A value that the name says is a number of bytes or milliseconds, as people read it. */
function reading({ name, value }) {
  const n = Number(value);
  const text = !(n >= 1024) ? '' : name.endsWith('_bytes') ? bytes(n) : name.endsWith('_ms') ? time(n) : '';
  return text ? el('span', { class: 'calm', text: ` ${text}` }) : null;
}

/** The settings in force. */
export const settings = (tools, fresh) => list(tools, fresh, {
  title: 'Settings in force', path: '/settings', search: 'Search settings', live: false,
  choices: [['changed', 'Show', [['no', 'all'], ['yes', 'changed ones']]]],
  columns: [
    ['Setting', (row) => el('code', { text: row.name }), 'first'],
    ['Value', (row) => (row.value === null ? '–' : el('span', { class: 'value' }, el('code', { text: plain(row.value) }), reading(row)))],
    ['Origin', (row) => (row.is_default ? el('span', { class: 'calm', text: 'default' }) : plain(row.origin))],
  ],
  nothing: () => empty('There are no settings.'),
  above: tools.session.may_administer ? () => reload(tools) : null,
});

/** The cluster. */
export function cluster({ main, follow }) {
  show(main, el('h2', { text: 'Cluster' }), el('div', { id: 'list' }));
  return follow('/cluster', (value) => {
    const node = main.querySelector('#list');
    if (value.is_alone) {
      update(node, empty('This broker is alone. docs/CLUSTER.md says how several become one; this command tells about a cluster:', 'rbmq cluster status'));
      return;
    }
    const facts = [['This member', plain(value.id || '–')], ['Members that live', count(value.members)], ['Groups that it owns', count(value.owned_groups)],
      ['Changes of owners', count(value.term_changes)], ['Failed calls of etcd', count(value.store_errors)], ['etcd heard of it', `${time(value.lease_age_ms)} ago`]];
    update(node, value.degraded ? el('p', { class: 'note', text: plain(value.degraded) }) : null,
      el('dl', { class: 'facts' }, ...facts.map(([name, text]) => el('div', {}, el('dt', { text: name }), el('dd', { text })))),
      el('h3', { text: 'Other members' }),
      value.others.length ? table('Other members', [
        ['Member', (row) => plain(row.id), 'first'], ['Addresses', (row) => plain(row.addresses.join(', '))],
      ], value.others) : empty('No other member lives.'));
  });
}
