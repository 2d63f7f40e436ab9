// Users, their tokens, and what their rights allow: for those who may administer the broker.

import { list } from '/ui/lists.js';
import { address, ask } from '/ui/live.js';
import { count, el, empty, plain, plural, show, tag, trouble } from '/ui/parts.js';

const date = (ms) => (ms == null ? '–' : new Date(ms).toISOString().slice(0, 16).replace('T', ' '));

/** The way between the pages about users. */
const ways = () => el('p', { class: 'pair' }, ...[['users', 'Users'], ['tokens', 'Tokens'], ['rights', 'May a user do it?']]
  .map(([path, text]) => el('a', { href: `#/${path}`, text })));

const rights = (row) => ['observe', 'chain', 'administer'].filter((right) => row[`may_${right}`]);

const logins = (row) => [row.has_password && 'password', row.tokens > 0 && plural(row.tokens, 'token'), ...row.certificates, ...row.unix.map((id) => `Unix user ${id}`)].filter(Boolean);

/** All users. */
export const users = (tools, fresh) => list(tools, fresh, {
  title: 'Users', path: '/users', search: 'Search names, roles', live: false, paged: true, above: ways,
  columns: [
    ['User', (row) => el('a', { href: address('#/rights', { user: row.name }), class: 'name', text: plain(row.name) }), 'first'],
    ['Roles', (row) => plain(row.roles.join(', ')) || '–'],
    ['Logs in by', (row) => plain(logins(row).join(', ')) || '–'],
    ['Rules', (row) => (row.rules ? count(row.rules) : tag('none', 'warn')), 'n'],
    ['Rights', (row) => el('span', { class: 'pair' }, ...rights(row).map((right) => tag(right)))],
  ],
  nothing: () => empty('No users are here: no file of users is in force, or the file has none. docs/security/USERS.md says how a broker gets users; this command makes one:', 'rbmq passwd alice'),
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
  nothing: () => empty('No user has a token. This command makes one:', 'rbmq token new alice'),
});

const OPERATIONS = [['publish', 'publish'], ['subscribe', 'subscribe to'], ['observe', 'observe the broker'], ['chain', 'connect as a broker'], ['administer', 'administer the broker']];

function form(own, move) {
  const field = (id, label) => el('label', { class: 'choice' }, el('span', { text: label }),
    el('input', { id, name: id, value: own[id] || '', maxlength: 255, spellcheck: 'false', autocomplete: 'off' }));
  const choice = el('select', { id: 'operation', name: 'operation' },
    ...OPERATIONS.map(([value, text]) => el('option', { value, text, selected: own.operation === value })));
  const node = el('form', { class: 'tools', submit: (event) => {
    event.preventDefault();
    move(new URLSearchParams(new FormData(node)));
  } }, field('user', 'User'), el('label', { class: 'choice' }, el('span', { text: 'wants to' }), choice),
  field('topic', 'Topic'), field('roles', 'More roles, with commas'), el('button', { class: 'main', type: 'submit', text: 'May the user?' }));
  return node;
}

/** Whether a user may do something, and which rule decides. */
export function mayUser({ main, parameters, move, state, failed }, fresh) {
  const own = Object.fromEntries(parameters);
  if (fresh) show(main, el('h2', { text: 'May a user do it?' }), ways(), form(own, move), el('div', { id: 'decision', 'aria-live': 'polite' }));
  state('still');
  if (!own.operation) return null;
  let over = false;
  const box = main.querySelector('#decision');
  const { user, operation, topic, roles } = own;
  ask(address('/rights', { user, operation, topic, roles })).then((value) => {
    if (over) return;
    show(box, el('p', { class: value.allowed ? 'well' : 'note' }, el('b', { text: value.allowed ? 'Yes: ' : 'No: ' }), plain(value.what)),
      value.why ? el('p', { text: plain(value.why) }) : null,
      el('p', { class: 'calm', text: `Roles: ${value.roles.length ? plain(value.roles.join(', ')) : 'none'}.${value.is_known ? '' : ' The file of users does not have this user.'}` }));
  }, (problem) => {
    if (over) return;
    if (problem.status === 401) failed(problem);
    else show(box, trouble(plain(problem.message)));
  });
  return () => { over = true; };
}
