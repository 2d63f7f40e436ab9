// One client, and its disconnection.

import { address, ask } from '/ui/live.js';
import { bytes, count, el, plain, plural, show, tag, trouble, update } from '/ui/parts.js';
import { traceLink } from '/ui/trace.js';

function facts(row) {
  const subscribes = row.subscriptions > 0;
  const rows = [
    ['Role', row.role], ['User', row.user ? `${plain(row.user)} (${row.method})` : '–'], ['Address', plain(row.address)], ['Connection', count(row.conn)],
    ['Publishes', row.buffers ? plural(row.buffers, 'topic') : '–'], ['Subscriptions', subscribes ? count(row.subscriptions) : '–'],
    ['Largest lag', subscribes ? bytes(row.max_lag_bytes) : '–'], ['Lost', subscribes ? bytes(row.dropped_bytes) : '–'],
  ];
  return el('dl', { class: 'list' }, ...rows.map(([title, text]) => el('div', {}, el('dt', { text: title }), el('dd', { text }))));
}

/** The button that disconnects the client, behind a question. `done` is called when it is disconnected. */
function disconnection(main, path, done) {
  const box = el('div', { class: 'publish', 'aria-live': 'polite' });
  const button = el('button', { id: 'disconnect', text: 'Disconnect…', click: () => {
    const sure = el('button', { id: 'sure', class: 'main', text: 'Disconnect it', click: async () => {
      sure.disabled = true;
      try {
        await ask(path, { method: 'DELETE' });
        done();
        show(box, el('p', { class: 'well', text: 'The client is disconnected. A client of the library connects again by itself, with another connection.' }));
        main.focus();
      } catch (problem) {
        show(box, trouble(plain(problem.message)), button);
        button.focus();
      }
    } });
    show(box, el('p', { text: 'Disconnect this client? It may connect again at once; remove the rights of its user to keep it out.' }),
      el('p', { class: 'pair' }, sure, el('button', { text: 'Cancel', click: () => { show(box, button); button.focus(); } })));
    sure.focus();
  } });
  show(box, button);
  return box;
}

/** One client. */
export function client({ main, parameters, follow, session, state }) {
  const path = address('/client', { conn: parameters.get('conn') || '' });
  const may = session.may_administer && session.may_change;
  const end = follow(path, ({ row }) => {
    update(main.querySelector('#name'), new Text(row.name ? plain(row.name) : 'unnamed'));
    update(main.querySelector('#client'), row.connected ? null : el('p', {}, tag('disconnected', 'warn')), el('section', { class: 'card' }, facts(row)));
    main.querySelector('#change').hidden = !may || row.role === 'gateway';
  });
  const change = el('div', { id: 'change', hidden: true }, disconnection(main, path, () => { end(); state('still'); }));
  show(main, el('p', { class: 'pair' }, el('a', { href: '#/clients', text: '‹ Clients' }), traceLink(session, { conn: parameters.get('conn') || '' })), el('h2', { id: 'name', class: 'name' }), el('div', { id: 'client' }), change);
  return end;
}
