// The colour scheme that a person chose, before anything is drawn, and the button that changes it.
'use strict';

(() => {
  const root = document.documentElement;
  const kept = (() => {
    try { return localStorage.getItem('theme'); } catch { return null; }
  })();
  if (kept === 'light' || kept === 'dark') root.dataset.theme = kept;

  const isDark = () => root.dataset.theme
    ? root.dataset.theme === 'dark'
    : matchMedia('(prefers-color-scheme: dark)').matches;

  document.addEventListener('DOMContentLoaded', () => {
    const button = document.getElementById('theme');
    const name = () => {
      const text = isDark() ? 'Use light colours' : 'Use dark colours';
      button.setAttribute('aria-label', text);
      button.title = text;
    };
    button.addEventListener('click', () => {
      root.dataset.theme = isDark() ? 'light' : 'dark';
      // Where nothing may be kept, the choice lasts as long as the page.
      try { localStorage.setItem('theme', root.dataset.theme); } catch { /* as said above */ }
      name();
    });
    matchMedia('(prefers-color-scheme: dark)').addEventListener('change', name);
    name();
  });
})();
