// The control page: shows the node's streams, nodes, rates and ages, and changes which node gets which stream.

import { Plot, spark } from './plot.js';

/** The time between two looks, in milliseconds, and how many rates of a stream its small line shows. */
const EVERY = 2000;
const LINE = 40;
/** A stream without a chunk for this long is late. */
const LATE_MS = 4000;

const byId = (id) => document.getElementById(id);
const make = (tag, className, text = '') => Object.assign(document.createElement(tag), { className, textContent: text });
const set = (element, text) => { if (element.textContent !== text) element.textContent = text; };

// --- Calls ---------------------------------------------------------------------

let token = (() => {
  try { return sessionStorage.getItem('token') ?? ''; } catch { return ''; }
})();

class Refused extends Error {}

async function call(path, method = 'GET') {
  const answer = await fetch(path, { method, headers: token ? { Authorization: `Bearer ${token}` } : {} });
  if (answer.status === 401) throw new Refused();
  if (!answer.ok) throw new Error((await answer.text()).trim() || `status ${answer.status}`);
  return answer;
}

byId('unlock').addEventListener('submit', (event) => {
  event.preventDefault();
  token = byId('token').value;
  // Where nothing may be kept, the token lasts as long as the page.
  try { sessionStorage.setItem('token', token); } catch { /* as said above */ }
  look();
});

/** Which call has failed: a look, or a change, whose failure stays until another change. */
let failing = '';

function complain(call, text) {
  failing = text ? call : '';
  byId('trouble').hidden = !text;
  set(byId('trouble'), text);
}

// --- Words ---------------------------------------------------------------------

const rateText = (bytes, short) => {
  const mega = bytes * 8 / 1e6;
  if (short) return mega >= 10 || mega === 0 ? mega.toFixed(0) : String(Number(mega.toFixed(2)));
  return `${mega >= 100 ? mega.toFixed(0) : mega.toFixed(1)} Mbit/s`;
};
const ageText = (ms, short) => {
  if (ms === null) return 'none yet';
  if (short) return ms >= 10000 ? `${Math.round(ms / 1000)} s` : `${ms} ms`;
  return ms >= 10000 ? `${Math.round(ms / 1000)} s` : `${Math.round(ms)} ms`;
};
const bytesText = (bytes) => bytes >= 2 ** 30 ? `${(bytes / 2 ** 30).toFixed(1)} GiB` : `${(bytes / 2 ** 20).toFixed(bytes < 2 ** 20 ? 2 : 0)} MiB`;
const CARRIERS = { shm: 'shared memory', tcp: 'TCP', rdma: 'RDMA' };

// --- Rates of single streams -----------------------------------------------------

/** By direction and id: the bytes at the last look, and the rates since. */
const rates = new Map();

function rateOf(direction, stream) {
  const key = `${direction} ${stream.id}`;
  const known = rates.get(key) ?? { line: [] };
  const now = performance.now();
  if (known.at && now - known.at > 500) {
    known.line.push(Math.max(0, stream.bytes - known.bytes) / ((now - known.at) / 1000));
    if (known.line.length > LINE) known.line.shift();
  }
  if (!known.at || now - known.at > 500) Object.assign(known, { at: now, bytes: stream.bytes });
  rates.set(key, known);
  return known.line;
}

// --- Tables ----------------------------------------------------------------------

/** Rows that stay while what they show does, so that the keyboard's focus stays where it is. */
class Rows {
  constructor(id, labels) {
    this.body = byId(id).querySelector('tbody');
    this.labels = labels;
    this.rows = new Map();
  }

  /** @param fill gets the row's head and cells. */
  show(items, key, fill) {
    const gone = new Set(this.rows.keys());
    for (const item of items) {
      const own = key(item);
      gone.delete(own);
      if (!this.rows.has(own)) this.add(own);
      fill(this.rows.get(own), item);
    }
    for (const own of gone) {
      this.rows.get(own).row.remove();
      this.rows.delete(own);
    }
  }

  add(key) {
    const row = document.createElement('tr');
    const head = document.createElement('th');
    head.scope = 'row';
    const cells = this.labels.map((label) => {
      const cell = document.createElement('td');
      cell.dataset.title = label;
      return cell;
    });
    row.append(head, ...cells);
    this.body.append(row);
    this.rows.set(key, { row, head, cells, toggles: new Map() });
  }
}

const sent = new Rows('streams', ['Rate', 'Newest chunk', 'Chunks', 'Goes to']);
const arrived = new Rows('arrivals', ['From', 'Rate', 'Newest chunk', 'Lost']);
const failures = new Rows('failures', ['When', 'Times', 'Why']);
const nodeRows = new Rows('nodes', ['Role', 'Connection', 'Gets']);

function showRate(cell, line) {
  const pair = make('div', 'pair');
  pair.append(make('span', '', line.length ? rateText(line.at(-1)) : '…'), spark(line));
  cell.replaceChildren(pair);
}

function showAge(cell, ms) {
  set(cell, ageText(ms));
  cell.classList.toggle('late', ms !== null && ms > LATE_MS);
}

function showStream({ head, cells: [rate, age, chunks, to], toggles }, stream, nodes) {
  if (!head.hasChildNodes()) head.append(stream.name, make('span', 'id', `id ${stream.id}`));
  showRate(rate, rateOf('sent', stream));
  showAge(age, stream.age_ms);
  set(chunks, stream.chunks.toLocaleString('en'));
  if (!to.firstChild) to.append(make('div', 'toggles'));
  for (const node of nodes) {
    let input = toggles.get(node.id);
    if (!input) {
      const label = make('label', '');
      input = Object.assign(document.createElement('input'), { type: 'checkbox' });
      input.setAttribute('role', 'switch');
      input.setAttribute('aria-label', `${stream.name} goes to ${node.name}`);
      input.addEventListener('change', () => change(input, stream, node));
      label.append(input, node.name);
      to.firstChild.append(label);
      toggles.set(node.id, input);
    }
    if (!input.disabled) input.checked = stream.nodes.includes(node.id);
  }
}

async function change(input, stream, node) {
  const give = input.checked;
  input.disabled = true;
  try {
    await call(`streams/${stream.id}/nodes/${node.id}`, give ? 'PUT' : 'DELETE');
    complain('change', '');
    set(byId('said'), `${stream.name} ${give ? 'goes to' : 'no longer goes to'} ${node.name}.`);
  } catch (error) {
    if (error instanceof Refused) lock();
    else complain('change', `${stream.name} could not be ${give ? 'given to' : 'taken from'} ${node.name}: ${error.message}`);
    input.checked = !give;
  }
  input.disabled = false;
  input.focus();
}

const roleText = (node) => [node.disseminates && 'disseminates', node.delivers && 'delivers'].filter(Boolean).join(', ');

function showNode({ head, cells: [role, connection, gets] }, node, state) {
  set(head, node.name);
  set(role, roleText(node));
  const peer = state.peers.find((own) => own.node === node.id);
  const words = peer
    ? [peer.connected ? `connected${CARRIERS[peer.carrier] ? ` by ${CARRIERS[peer.carrier]}` : ''}` : 'not connected', peer.connected ? 'up' : 'down']
    : node.id === state.node.id ? ['this node', 'up'] : ['not needed yet', ''];
  if (connection.textContent !== words[0]) connection.replaceChildren(make('span', '', words[0]));
  connection.firstChild.className = `state ${words[1]}`;
  const names = state.sends.filter((stream) => stream.nodes.includes(node.id)).map((stream) => stream.name);
  set(gets, names.length > 4 ? `${names.length} streams` : names.join(', ') || '–');
}

// --- All of it -------------------------------------------------------------------

const plots = [
  new Plot(byId('rates'), 'Throughput', rateText, [
    { name: 'to nodes', of: (sample) => sample.sent },
    { name: 'from encoders and nodes', of: (sample) => sample.made + sample.received },
  ]),
  new Plot(byId('ages'), 'Time since the newest chunk', ageText, [{ name: 'of the stream that waits longest', of: (sample) => sample.age_ms }]),
];
let samples = [];

function showNow(state) {
  const newest = samples.at(-1) ?? { made: 0, sent: 0, received: 0, age_ms: 0 };
  const up = state.peers.filter((peer) => peer.connected).length;
  const all = [
    ['Streams', String(new Set([...state.sends, ...state.receives].map((stream) => stream.id)).size), ''],
    ['From encoders and nodes', ...rateText(newest.made + newest.received).split(' ')],
    ['To nodes', ...rateText(newest.sent).split(' ')],
    ['Longest wait for a chunk', ...ageText(newest.age_ms).split(' ')],
    ['Nodes connected', `${up}`, `of ${state.peers.length}`],
    ['Memory of the rings', ...bytesText(state.ring_bytes).split(' ')],
  ];
  if (state.encoders) all.push(['Encoders refused or failed', String(state.encoders.refused + state.encoders.failed), '']);
  byId('now').replaceChildren(...all.map(([name, value, unit]) => {
    const own = make('div', '');
    const number = make('dd', '', value);
    if (unit) number.append(' ', make('small', '', unit));
    own.append(make('dt', '', name), number);
    return own;
  }));
}

function showRemarks(remarks) {
  const section = byId('remarks');
  section.hidden = remarks.length === 0;
  const list = section.querySelector('dl');
  // What has not changed is not read aloud again.
  const text = JSON.stringify(remarks);
  if (list.dataset.text === text) return;
  list.dataset.text = text;
  list.replaceChildren(...remarks.flatMap(({ stream, text: said }) => [make('dt', '', stream), make('dd', '', said)]));
}

function showFailures(list) {
  byId('failed').hidden = list.length === 0;
  failures.show(list, (own) => `${own.address} ${own.reason}`, ({ head, cells: [when, times, why] }, own) => {
    set(head, `${own.address} (${own.protocol.toUpperCase()})`);
    set(when, new Date(own.unix_ms).toLocaleTimeString());
    set(times, String(own.times));
    set(why, own.reason);
  });
}

/** What an encoder is told, at the name by which this page was opened. */
function howTo(ports) {
  const scheme = ports?.rtmp ? 'rtmp' : ports?.rtmps ? 'rtmps' : null;
  return scheme ? `OBS: server ${scheme}://${location.hostname}:${ports[scheme]}/live, stream key NAME; with a key of its own NAME?key=KEY.` : '';
}

function show(state) {
  set(byId('sum'), `node ${state.node.name}, ${roleText(state.node)}`);
  document.title = `${state.node.name} – RBLive control`;
  const takers = state.nodes.filter((node) => node.takes_streams && (node.id !== state.node.id || node.delivers));
  byId('none').hidden = state.sends.length > 0;
  byId('streams').hidden = state.sends.length === 0;
  sent.show(state.sends, (stream) => stream.id, (row, stream) => showStream(row, stream, takers));
  byId('received').hidden = state.receives.length === 0;
  arrived.show(state.receives, (stream) => stream.id, ({ head, cells: [from, rate, age, lost] }, stream) => {
    set(head, stream.name);
    const node = state.nodes.find((own) => own.id === stream.from)?.name ?? `node ${stream.from}`;
    set(from, stream.connected ? node : `${node} (not connected)`);
    showRate(rate, rateOf('received', stream));
    showAge(age, stream.age_ms);
    set(lost, stream.lost_bytes ? bytesText(stream.lost_bytes) : 'nothing');
  });
  showRemarks(state.encoders?.remarks ?? []);
  showFailures(state.encoders?.failures ?? []);
  set(byId('how'), howTo(state.encoders?.ports));
  nodeRows.show(state.nodes, (node) => node.id, (row, node) => showNode(row, node, state));
  const there = new Set([...state.sends.map(({ id }) => `sent ${id}`), ...state.receives.map(({ id }) => `received ${id}`)]);
  for (const key of rates.keys()) if (!there.has(key)) rates.delete(key);
  showNow(state);
}

function lock() {
  byId('content').hidden = true;
  byId('unlock').hidden = false;
  complain('look', token ? 'This is not the token of the node.' : '');
  byId('token').focus();
}

let timer = 0;

async function look() {
  clearTimeout(timer);
  try {
    const newest = samples.at(-1)?.unix_ms ?? 0;
    const [state, history] = await Promise.all([call('streams'), call(`history?since=${newest}`)].map(async (answer) => (await answer).json()));
    byId('content').hidden = false;
    byId('unlock').hidden = true;
    samples = [...samples, ...history.samples].slice(-300);
    show(state);
    const begun = samples.length ? samples.at(-1).unix_ms - samples[0].unix_ms : 0;
    const span = [60000, 120000, 300000, 600000].find((own) => own >= begun) ?? 600000;
    plots.forEach((plot) => plot.set(samples, span));
    if (failing === 'look') complain('look', '');
  } catch (error) {
    if (error instanceof Refused) return lock();
    complain('look', 'The node does not answer. What is below may have changed; the page tries again by itself.');
  }
  timer = setTimeout(look, EVERY);
}

for (const link of document.querySelectorAll('[data-open]')) {
  link.addEventListener('click', async (event) => {
    // Without a token the browser opens the address itself.
    if (!token) return;
    event.preventDefault();
    const dialog = byId('text');
    try {
      dialog.querySelector('pre').textContent = await (await call(link.pathname)).text();
      set(byId('text-title'), link.pathname);
      dialog.showModal();
    } catch (error) {
      if (error instanceof Refused) lock();
      else complain('change', `${link.pathname} cannot be read: ${error.message}`);
    }
  });
}

look();
