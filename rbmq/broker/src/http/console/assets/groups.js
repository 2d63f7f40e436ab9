// Groups of workers: the list, and one group with its workers.

import { clientLink, list } from '/ui/lists.js';
import { address } from '/ui/live.js';
import { bytes, count, el, empty, plain, plural, quoted, show, table, tag, time, topicLink, word } from '/ui/parts.js';

const STATES = {
  failing: ['the disk fails', 'bad'], no_workers: ['no workers', 'bad'], full: ['full', 'warn'], behind: ['falls behind', 'warn'], well: ['well', 'good'],
};

const state = (row) => tag(...(STATES[row.state] || [row.state, '']));

/** About so many messages. */
const messages = (row) => (row.lag_messages == null ? '–' : `${row.unread_bytes > 0 ? 'about ' : ''}${count(row.lag_messages)}`);

const groupLink = (row) => el('a', { href: address('#/group', { topic: row.topic, group: row.group }), class: 'name', text: plain(row.group) });

/** All groups. */
export const groups = (tools, fresh) => list(tools, fresh, {
  title: 'Groups of workers', path: '/groups', search: 'Search groups, topics',
  choices: [['sort', 'Order', [['lag', 'largest lag first'], ['state', 'worst first'], ['pending', 'most pending first'], ['name', 'by name']]]],
  columns: [
    ['Group', groupLink, 'first'],
    ['Topic', (row) => topicLink(row.topic)],
    ['State', state],
    ['Workers', (row) => count(row.workers), 'n'],
    ['Lag', (row) => bytes(row.lag_bytes), 'n'],
    ['Messages to do', messages, 'n'],
    ['Pending', (row) => count(row.pending), 'n'],
    ['Failed attempts', (row) => count(row.failed), 'n'],
    ['Dead letters', (row) => (row.dead ? tag(count(row.dead), 'warn') : '0'), 'n'],
  ],
  nothing: () => empty('No groups. Workers share a kept topic by this command:', 'rbmq sub orders --group billing'),
});

function facts(row) {
  const dead = row.max_attempts ? `after ${plural(row.max_attempts, 'failed attempt')}` : 'never';
  const rows = [
    ['Lag', bytes(row.lag_bytes)], ['Not read yet', bytes(row.unread_bytes)], ['Messages to do', messages(row)],
    ['Pending', `${count(row.pending)}, of which workers have ${count(row.held)}`],
    ['Handed out', count(row.delivered)], ['Acknowledged', count(row.acked)], ['Failed attempts', count(row.failed)],
    ['Dead letters', count(row.dead)], ['A message is a dead letter', dead],
    ['Dead letters go to', row.dead_letter ? topicLink(row.dead_letter) : '–'],
    ['Done below', count(row.floor)], ['Read below', count(row.next)], ['The log ends at', count(row.end)],
    ['A worker may take', time(row.ack_ms)], ['Order', row.ordered ? 'by key' : 'none'],
    ['Lost messages', count(row.lost)], ['Lost before they were read', bytes(row.lost_bytes)], ['Damaged in the journal', bytes(row.damaged_bytes)],
  ];
  return el('dl', { class: 'list' }, ...rows.map(([title, value]) => el('div', {}, el('dt', { text: title }), el('dd', {}, value))));
}

const workers = (rows) => table('Workers', [
  ['Worker', clientLink, 'first'],
  ['User', (row) => (row.user ? plain(row.user) : '–')],
  ['Address', (row) => plain(row.address || '–')],
  ['Has', (row) => count(row.held), 'n'],
  ['Overdue', (row) => (row.overdue ? tag(count(row.overdue), 'warn') : '0'), 'n'],
  ['May have', (row) => count(row.credit), 'n'],
  ['State', (row) => (row.is_leaving ? tag('leaves') : tag('works', 'good'))],
], rows);

/** One group. */
export function group({ main, parameters, follow }, fresh) {
  const [topic, name] = ['topic', 'group'].map((own) => parameters.get(own) || '');
  if (fresh) {
    show(main, el('p', {}, el('a', { href: '#/groups', text: '‹ Groups' })),
      el('h2', {}, el('span', { class: 'name', text: plain(name) }), ' of ', topicLink(topic)), el('div', { id: 'group' }));
  }
  return follow(address('/group', { topic, group: name }), ({ row, members, is_cut: isCut }) => {
    show(main.querySelector('#group'), el('p', {}, state(row)), el('section', { class: 'card' }, facts(row)), el('h3', { text: 'Workers' }),
      members.length ? workers(members) : el('p', { class: 'calm' }, 'Nobody works for it. This command does: ',
        el('code', { text: `rbmq sub --group=${word(name)} ${quoted(topic)}` })),
      isCut ? el('p', { class: 'calm', text: 'There are more workers.' }) : null);
  });
}
