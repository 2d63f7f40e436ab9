// The frame of the console: who is logged in, which page is shown, and whether it is up to date.

import { ask, follow, know } from '/ui/live.js';
import { el, show, trouble, plain } from '/ui/parts.js';
import { client } from '/ui/client.js';
import { group, groups } from '/ui/groups.js';
import { login } from '/ui/login.js';
import { overview } from '/ui/overview.js';
import { messages } from '/ui/messages.js';
import { topic } from '/ui/topic.js';
import { trace } from '/ui/trace.js';
import { clients, cluster, kept, settings, topics } from '/ui/lists.js';
import { mayUser, tokens, users } from '/ui/users.js';

const PAGES = [
  ['', 'Overview', overview], ['topics', 'Topics', topics], ['messages', 'Messages', messages], ['clients', 'Clients', clients],
  ['groups', 'Groups', groups], ['kept', 'Kept', kept], ['cluster', 'Cluster', cluster], ['settings', 'Settings', settings],
  ['users', 'Users', users],
];
// The letters behind g: the first ones, m (members) for the cluster, and r (read) for messages.
const KEYS = { o: '', t: 'topics', r: 'messages', c: 'clients', g: 'groups', k: 'kept', m: 'cluster', s: 'settings', u: 'users' };
// Pages for users that may not observe.
const OPEN = ['messages'];
// Pages for users that may administer.
const OF_ADMINISTRATORS = ['users', 'tokens', 'rights', 'trace'];
// Pages without a link of their own: the page and its title, and the link that is marked.
const HIDDEN_PAGES = {
  topic: ['Topic', topic, 'topics'], group: ['Group', group, 'groups'], client: ['Client', client, 'clients'],
  tokens: ['Tokens', tokens, 'users'], rights: ['Rights', mayUser, 'users'], trace: ['Trace', trace, null],
};

/** Whether somebody may see a page. */
function maySee(who, path) {
  if (OF_ADMINISTRATORS.includes(path)) return who.may_administer;
  return who.may_observe || OPEN.includes(path);
}

const main = document.getElementById('main');
let isShown = false;
let leave = () => {};
let session = null;

/** The page and its parameters, as the address has them. */
function place() {
  const [path, query = ''] = location.hash.replace(/^#\/?/, '').split('?');
  return { path, parameters: new URLSearchParams(query) };
}

/** Another address of the same page, without an entry in the history for each letter. */
function move(parameters = place().parameters) {
  const { path } = place();
  const query = new URLSearchParams([...parameters].filter(([, value]) => value !== '')).toString();
  history.replaceState(null, '', `#/${path}${query ? `?${query}` : ''}`);
  draw(false);
}

const STATES = { live: ['live', 'Live'], slow: ['slow', 'Every 5 s'], wait: ['wait', 'Connecting…'], off: ['off', 'Not up to date'], still: ['', ''] };

function state(name) {
  const node = document.getElementById('live');
  const [kind, text] = STATES[name];
  if (node.textContent !== text) node.textContent = text;
  node.className = `live ${kind}`;
}

/** What a page may use. */
function tools(parameters) {
  let problem = null;
  const failed = (why) => {
    if (why.status === 401) return again();
    problem?.remove();
    problem = trouble(plain(why.message));
    main.prepend(problem);
    return null;
  };
  const done = () => { problem?.remove(); problem = null; };
  return {
    main, parameters, move, failed, session, state,
    once: async (path) => { try { const value = await ask(path); done(); state('still'); return value; } catch (why) { failed(why); return null; } },
    follow: (path, value) => follow(path, { value: (json) => { done(); value(json); }, problem: failed, state }),
  };
}

function draw(fresh = true) {
  leave();
  leave = () => {};
  if (!session) return;
  main.querySelectorAll(':scope > [role=alert]').forEach((old) => old.remove());
  const { path, parameters } = place();
  const hidden = Object.hasOwn(HIDDEN_PAGES, path) ? HIDDEN_PAGES[path] : ['No page'];
  const [, title, page, current = path] = PAGES.find(([own]) => own === path) || [path, ...hidden];
  for (const link of document.querySelectorAll('#nav a')) {
    if (link.dataset.page === current) link.setAttribute('aria-current', 'page');
    else link.removeAttribute('aria-current');
  }
  document.title = `${title} · RBMQ console`;
  if (fresh) {
    state('wait');
    show(main);
    // The keyboard goes on in the new page, and a screen reader says its title.
    main.setAttribute('aria-label', title);
    if (isShown) main.focus({ preventScroll: true });
    isShown = true;
    scrollTo(0, 0);
  }
  if (!page) {
    show(main, trouble('There is no such page.'), el('p', {}, el('a', { href: '#/', text: 'Overview' })));
    return;
  }
  if (!maySee(session, path)) {
    const isOfAdministrators = OF_ADMINISTRATORS.includes(path);
    const what = path === 'trace' ? 'trace clients and topics' : isOfAdministrators ? 'see the users' : 'see the state';
    const user = session.who?.user ? `User '${plain(session.who.user)}'` : 'This client';
    show(main, el('div', { class: 'empty' },
      el('p', { text: `${user} may not ${what} of this broker.` }),
      el('p', {}, el('a', { href: '#/messages', text: 'Messages' }), ' of topics that it may subscribe to are there.'),
      el('p', {}, 'The operator of the broker can allow that by a rule with ', el('code', { text: isOfAdministrators ? 'administer = true' : 'observe = true' }), ' (access.rules).')));
    state('still');
    return;
  }
  leave = page(tools(parameters), fresh) || (() => {});
}

// A page that is refused at once after each beginning does not begin as fast as it can.
const AGAIN = 5000;
let begun = -AGAIN;
let waiting = null;

/** Begins anew, at once or when some time has passed since the last beginning. */
function again() {
  leave();
  leave = () => {};
  const wait = begun + AGAIN - performance.now();
  if (wait <= 0) return begin();
  state('off');
  clearTimeout(waiting);
  waiting = setTimeout(begin, wait);
  return null;
}

/** Learns who is logged in, and shows the page or the login. */
async function begin() {
  clearTimeout(waiting);
  begun = performance.now();
  leave();
  leave = () => {};
  session = null;
  let now;
  try {
    now = await ask('/session');
  } catch (why) {
    state('off');
    show(main, trouble(plain(why.message)), el('button', { text: 'Try again', click: begin }));
    return;
  }
  know(now.csrf);
  const nav = document.getElementById('nav');
  const who = document.getElementById('who');
  const out = document.getElementById('out');
  const isIn = now.who !== null;
  const name = now.who && (now.who.user === null ? 'token of the endpoint' : now.who.user);
  who.hidden = !name;
  who.textContent = name ? plain(name) : '';
  out.hidden = !isIn || !(now.logins.token || now.logins.password) || now.who.method === 'certificate';
  show(nav, ...(isIn ? PAGES : []).filter(([path]) => maySee(now, path)).map(([path, title]) =>
    el('a', { href: `#/${path}`, 'data-page': path, text: title })));
  if (!isIn) {
    state('still');
    login(main, now, begin);
    return;
  }
  session = now;
  draw();
}

document.getElementById('out').addEventListener('click', async () => {
  try { await ask('/session', { method: 'DELETE' }); } catch { /* Then it has ended already. */ }
  begin();
});
// The part of an address behind # is a page.
document.querySelector('.skip').addEventListener('click', (event) => { event.preventDefault(); main.focus(); });
addEventListener('hashchange', () => draw());

// The keys: / searches, and g with a letter goes to a page.
let after = '';
addEventListener('keydown', (event) => {
  if (event.target.matches('input, select, textarea') || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === '/') {
    const search = document.querySelector('input[type="search"]');
    if (search) { search.focus(); event.preventDefault(); }
  } else if (after === 'g') {
    if (Object.hasOwn(KEYS, event.key)) location.hash = `#/${KEYS[event.key]}`;
    after = '';
    return;
  }
  after = event.key;
});
begin();
