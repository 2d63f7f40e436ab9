// One client, and its disconnection.

import { ask } from '/ui/live.js';
import { bytes, count, el, plain, plural, show, tag, trouble } from '/ui/parts.js';

function facts(row) {
  const rows = [
    ['Role', row.role], ['User', row.user ? `${plain(row.user)} (${row.method})` : '–'], ['Address', plain(row.address)], ['Connection', count(row.conn)],
    ['Publishes', row.buffers ? plural(row.buffers, 'topic') : '–'], ['Subscriptions', row.subscriptions ? count(row.subscriptions) : '–'],
    ['Largest lag', row.subscriptions ? bytes(row.max_lag_bytes) : '–'], ['Lost', row.subscriptions ? bytes(row.dropped_bytes) : '–'],
  ];
  return el('dl', { class: 'list' }, ...rows.map(([title, text]) => el('div', {}, el('dt', { text: title }), el('dd', { text }))));
}

/** The button that disconnects the client, behind a question. */
function disconnect(conn, stop) {
  const box = el('div', { class: 'act' });
  const begin = () => {
    const sure = el('button', { class: 'main', text: 'Disconnect it', click: async () => {
      sure.disabled = true;
      try {
        await ask(`/client?conn=${conn}`, { method: 'DELETE' });
        stop();
        show(box, el('p', { class: 'well', role: 'status', text: 'It is disconnected. A client of the library connects again by itself, with another connection.' }));
      } catch (problem) {
        show(box, trouble(plain(problem.message)), button);
      }
    } });
    show(box, el('p', { text: 'Disconnect this client? It may connect again at once; take the rights of its user away to keep it out.' }),
      el('p', { class: 'pair' }, sure, el('button', { text: 'Cancel', click: () => { show(box, button); button.focus(); } })));
    sure.focus();
  };
  const button = el('button', { text: 'Disconnect…', click: begin });
  box.append(button);
  return box;
}

/** One client. */
export function client({ main, parameters, follow, session }, fresh) {
  const conn = parameters.get('conn') || '';
  let over = () => {};
  if (fresh) {
    show(main, el('p', {}, el('a', { href: '#/clients', text: '‹ Clients' })), el('h2', { id: 'name', class: 'name' }), el('div', { id: 'client' }));
    if (session.may_administer && session.changes) main.append(disconnect(conn, () => over()));
  }
  over = follow(`/client?conn=${encodeURIComponent(conn)}`, ({ row }) => {
    main.querySelector('#name').textContent = row.name ? plain(row.name) : 'unnamed';
    show(main.querySelector('#client'), row.connected ? null : el('p', {}, tag('disconnected', 'warn')), el('section', { class: 'card' }, facts(row)));
  });
  return () => over();
}
