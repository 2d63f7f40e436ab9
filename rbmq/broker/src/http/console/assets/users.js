// Users, their tokens, and what their rights allow.

import { list } from '/ui/lists.js';
import { address, ask } from '/ui/live.js';
import { count, el, empty, plain, show, tag, trouble } from '/ui/parts.js';

const date = (ms) => (ms == null ? '–' : new Date(ms).toISOString().slice(0, 16).replace('T', ' '));

/** The way between the pages about users. */
const ways = () => el('p', { class: 'ways' }, ...[['users', 'Users'], ['tokens', 'Tokens'], ['rights', 'May a user do it?']]
  .map(([path, text]) => el('a', { href: `#/${path}`, text })));

const rights = (row) => ['observe', 'chain', 'administer'].filter((right) => row[`may_${right}`]);

/** All users. */
export const users = (tools, fresh) => list(tools, fresh, {
  title: 'Users', path: '/users', search: 'Search names, roles', live: false, paged: true, above: ways,
  columns: [
    ['User', (row) => el('a', { href: address('#/rights', { user: row.name }), class: 'name', text: plain(row.name) }), 'first'],
    ['Roles', (row) => plain(row.roles.join(', ')) || '–'],
    ['Logs in by', (row) => plain([row.has_password && 'password', row.tokens && `${count(row.tokens)} tokens`, ...row.certificates, ...row.unix.map((id) => `Unix user ${id}`)]
      .filter(Boolean).join(', ')) || '–'],
    ['Rules', (row) => (row.rules ? count(row.rules) : tag('none', 'warn')), 'n'],
    ['Rights', (row) => el('span', { class: 'pair' }, ...rights(row).map((right) => tag(right)))],
  ],
  nothing: () => empty('This broker has no users: who may connect may do everything that no rule denies. docs/security/USERS.md says how it gets some:', 'rbmq passwd anna'),
});

/** All tokens. */
export const tokens = (tools, fresh) => list(tools, fresh, {
  title: 'Tokens of users', path: '/tokens', search: 'Search tokens, users', live: false, paged: true, above: ways,
  columns: [
    ['Token', (row) => el('span', { class: 'name', text: plain(row.name) }), 'first'],
    ['User', (row) => plain(row.user)],
    ['Made (UTC)', (row) => date(row.created_ms)],
    ['Expires (UTC)', (row) => el('span', { class: 'pair' }, row.expires_ms == null ? 'never' : date(row.expires_ms), row.is_expired ? tag('expired', 'warn') : null)],
  ],
  nothing: () => empty('There are no tokens. This command makes one:', 'rbmq token new anna'),
});

const OPERATIONS = [['publish', 'publish'], ['subscribe', 'subscribe to'], ['observe', 'observe the broker'], ['chain', 'connect as a broker'], ['administer', 'administer the broker']];

/** Whether a user may do something, and which rule decides. */
export function mayUser({ main, parameters, move }, fresh) {
  const own = Object.fromEntries(parameters);
  if (fresh) {
    const field = (id, label, input) => el('p', { class: 'field' }, el('label', { for: id, text: label }), input);
    const text = (id) => el('input', { id, name: id, value: own[id] || '', maxlength: 255, spellcheck: 'false', autocomplete: 'off' });
    const form = el('form', { class: 'card question', submit: (event) => {
      event.preventDefault();
      move(new URLSearchParams(new FormData(form)));
    } }, field('user', 'User', text('user')), field('operation', 'wants to', el('select', { id: 'operation', name: 'operation' },
      ...OPERATIONS.map(([value, label]) => el('option', { value, text: label, selected: own.operation === value })))),
    field('topic', 'Topic (for publish and subscribe)', text('topic')), field('roles', 'More roles, with commas', text('roles')),
    el('button', { class: 'main', type: 'submit', text: 'May the user?' }));
    show(main, el('h2', { text: 'May a user do it?' }), ways(), form, el('div', { id: 'decision', 'aria-live': 'polite' }));
  }
  if (!own.operation) return null;
  const box = main.querySelector('#decision');
  ask(address('/rights', own)).then((value) => {
    show(box, el('p', { class: value.allowed ? 'well' : 'note' }, el('b', { text: value.allowed ? 'Yes: ' : 'No: ' }), plain(value.what)),
      value.why ? el('p', { text: plain(value.why) }) : null,
      el('p', { class: 'calm', text: `Roles: ${value.roles.length ? plain(value.roles.join(', ')) : 'none'}.${value.is_known ? '' : ' The file of users does not have this user.'}` }));
  }, (problem) => show(box, trouble(plain(problem.message))));
  return null;
}
