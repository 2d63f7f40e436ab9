// The page on which somebody logs in.

import { ask } from '/ui/live.js';
import { el, plain, show, trouble } from '/ui/parts.js';

/** Asks who it is, in the ways that the broker has. */
export function login(main, { logins, version }, done) {
  const told = el('div', { 'aria-live': 'polite' });
  const input = (id, type, label, autocomplete) => [
    el('label', { for: id, text: label }),
    el('input', { id, type, name: id, autocomplete, required: true, maxlength: 4096, spellcheck: 'false' }),
  ];
  const form = (title, fields, body) => {
    const button = el('button', { class: 'main', type: 'submit', text: 'Log in' });
    const own = el('form', { class: 'card', submit: async (event) => {
      event.preventDefault();
      button.disabled = true;
      show(told);
      try {
        await ask('/session', { method: 'POST', body: body(new FormData(own)) });
        done();
      } catch (problem) {
        show(told, trouble(plain(problem.message)));
        button.disabled = false;
        button.focus();
      }
    } }, el('h2', { text: title }), ...fields, button);
    return own;
  };
  const forms = [];
  if (logins.password) {
    forms.push(form('Name and password', [...input('user', 'text', 'Name', 'username'),
      ...input('password', 'password', 'Password', 'current-password')],
    (data) => ({ user: data.get('user'), password: data.get('password') })));
  }
  if (logins.token) {
    forms.push(form('Token', input('token', 'password', 'Token of a user, or of the endpoint', 'off'),
      (data) => ({ token: data.get('token').trim() })));
  }
  const none = forms.length === 0 && el('p', { text: 'This broker asks for the certificate of a user who may observe it. The browser has shown none.' });
  show(main, el('div', { class: 'login' }, el('h2', { text: 'Log in' }),
    el('p', { class: 'calm', text: `RBMQ ${plain(version)}` }), told, ...forms, none || null));
  main.querySelector('input')?.focus();
}
