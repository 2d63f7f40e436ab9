// The difference between the settings in force and those of the configuration, and a reload that makes it.

import { address, ask } from '/ui/live.js';
import { count, el, plain, plural, show, table, trouble } from '/ui/parts.js';

const value = (text) => (text === null ? '–' : el('code', { class: 'value', text: plain(text) }));

const changes = (title, rows) => (rows.length ? el('section', {}, el('h3', { text: title }), table(title, [
  ['Setting', (row) => el('span', {}, el('code', { text: row.name }), row.same ? el('span', { class: 'calm', text: ` and ${count(row.same)} that stay` }) : null), 'first'],
  ['In force', (row) => value(row.old)],
  ['In the configuration', (row) => value(row.new)],
  ['Origin', (row) => plain(row.origin ?? '–')],
], rows)) : null);

/** The difference on demand, and the button that reloads, for those who may. `tools.move` shows the settings anew, as they are looked for now. */
export function reload({ session, move, failed }) {
  const box = el('div', { id: 'changes' });
  const told = el('div', { role: 'status' });
  const put = (...children) => {
    // The button that goes with the difference leaves the keyboard to the other one.
    if (box.contains(document.activeElement)) compare.focus();
    show(box, ...children);
  };
  const on = (id, text, act) => {
    const button = el('button', { id, class: 'small', text, click: async () => {
      // A button that nobody can press keeps the keyboard.
      if (button.hasAttribute('aria-disabled')) return;
      button.setAttribute('aria-disabled', 'true');
      show(told);
      try {
        await act();
      } catch (why) {
        if (why.status === 401) failed(why);
        else put( trouble(plain(why.message)));
      }
      button.removeAttribute('aria-disabled');
    } });
    return button;
  };
  const make = (mark) => on('reload', 'Reload', async () => {
    const { applied, needs_restart: later, notes } = await ask(address('/reload', { mark }), { method: 'POST' });
    show(told, el('p', { class: 'well', text: `Reloaded: ${plural(applied.length, 'change is', 'changes are')} in force, ${count(later.length)} wait for a restart.` }));
    put(...notes.map((note) => el('p', { class: 'note', text: plain(note) })), changes('In force now', applied), changes('Needs a restart', later));
    if (box.isConnected) move();
  });
  const compare = on('compare', 'Compare with the configuration', async () => {
    const { applied, needs_restart: later, problem, mark } = await ask('/reload');
    const none = !applied.length && !later.length && problem === null;
    show(told, problem === null ? null : el('p', { class: 'note', text: `A reload would change nothing: ${plain(problem)}` }),
      none ? el('p', { class: 'calm', text: 'The configuration has the settings in force. Users, tokens and certificates are read again by a reload, and not compared.' }) : null,
      none || problem !== null ? null : el('p', { class: 'calm', text: `A reload puts ${plural(applied.length, 'change')} in force, and ${count(later.length)} need a restart.` }));
    put(changes('A reload puts in force', applied), changes('Needs a restart', later),
      mark === null ? null : session.may_change ? el('p', {}, make(mark)) : el('p', { class: 'calm', text: 'This console changes nothing (http.console). SIGHUP reloads at the machine of the broker.' }));
  });
  return el('div', { class: 'publish' }, compare, told, box);
}
