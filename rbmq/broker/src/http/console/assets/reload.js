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

/** The difference on demand, and the button that reloads, for those who may. `tools.move` shows the settings anew. */
export function reload({ session, parameters, move, failed }) {
  const box = el('div', { id: 'changes', 'aria-live': 'polite' });
  const on = (id, text, act) => {
    const button = el('button', { id, class: 'small', text, click: async () => {
      button.disabled = true;
      try {
        await act();
      } catch (why) {
        if (why.status === 401) failed(why);
        else show(box, trouble(plain(why.message)));
      }
      button.disabled = false;
    } });
    return button;
  };
  const make = (mark) => on('reload', 'Reload', async () => {
    const { applied, needs_restart: later, notes } = await ask(address('/reload', { mark }), { method: 'POST' });
    show(box, el('p', { class: 'well', text: `Reloaded: ${plural(applied.length, 'change is', 'changes are')} in force, ${count(later.length)} wait for a restart.` }),
      ...notes.map((note) => el('p', { class: 'note', text: plain(note) })), changes('In force now', applied), changes('Needs a restart', later));
    move(parameters);
  });
  const compare = on('compare', 'Compare with the configuration', async () => {
    const { applied, needs_restart: later, problem, mark } = await ask('/reload');
    const none = !applied.length && !later.length && problem === null;
    show(box, problem === null ? null : el('p', { class: 'note', text: `A reload would change nothing: ${plain(problem)}` }),
      none ? el('p', { class: 'calm', text: 'The configuration has the settings in force. Users, tokens and certificates are read again by a reload, and not compared.' }) : null,
      changes('A reload puts in force', applied), changes('Needs a restart', later),
      mark === null ? null : session.may_change ? el('p', {}, make(mark)) : el('p', { class: 'calm', text: 'This console changes nothing (http.console). SIGHUP reloads at the machine of the broker.' }));
  });
  return el('div', { class: 'publish' }, compare, box);
}
