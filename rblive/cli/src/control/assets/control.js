// The control page: shows the node's streams, nodes, rates and ages, and changes which node gets which stream.

import { Plot, spark } from './plot.js';

/** The time between two looks, in milliseconds, and how many rates of a stream its small line shows. */
const EVERY = 2000;
const LINE = 40;
/** A stream without a chunk for this long is late. */
const LATE_MS = 4000;
/** Key frames that are so far apart are far. */
const FAR_APART_MS = 4000;

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
const timeText = (ms) => new Date(ms).toLocaleTimeString();
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
const encoders = new Rows('encoders', ['From', 'Since', 'Picture', 'Codecs', 'Key frames', 'Rate', 'End']);
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

/** The numbers on top, which stay while they change. */
const facts = {
  rows: new Map(),
  show(all) {
    for (const [name, value, unit] of all) {
      if (!this.rows.has(name)) {
        const own = { label: make('dt', '', name), number: make('dd', ''), row: make('div', '') };
        own.row.append(own.label, own.number);
        byId('now').append(own.row);
        this.rows.set(name, own);
      }
      const { number } = this.rows.get(name);
      const text = unit ? `${value} ${unit}` : value;
      if (number.textContent === text) continue;
      number.replaceChildren(value, ...(unit ? [' ', make('small', '', unit)] : []));
    }
  },
  /** The refused encoders are marked, and lead to the list that says why. */
  link(to) {
    const own = this.rows.get('Encoders refused or failed');
    if (!own || own.number.classList.contains('late') === Boolean(to)) return;
    own.number.classList.toggle('late', Boolean(to));
    own.label.replaceChildren(to ? Object.assign(make('a', '', 'Encoders refused or failed'), { href: to }) : 'Encoders refused or failed');
  },
};

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
  if (state.encoders) {
    const { refused, failed, failures: [newest] } = state.encoders;
    all.push(['Encoders refused or failed', String(refused + failed), newest ? `last ${timeText(newest.unix_ms)}` : '']);
  }
  // A link that has the focus stays.
  facts.show(all);
  facts.link(state.encoders?.failures.length ? '#failures-title' : null);
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

function showEncoder({ row, head, cells: [from, since, picture, codecs, keys, rate, end] }, own) {
  set(head, own.rendition_of ? `${own.stream} (of ${own.rendition_of})` : own.stream);
  set(from, `${own.user ? `${own.user}, ` : ''}${own.address} (${own.protocol.toUpperCase()})`);
  set(since, timeText(own.since_unix_ms));
  set(picture, own.width ? `${own.width} × ${own.height}` : 'none');
  set(codecs, own.codecs.join(', ') || 'unknown');
  const apart = own.key_frames_ms;
  set(keys, apart === null ? 'unknown' : `${(apart / 1000).toFixed(1)} s apart`);
  keys.classList.toggle('late', apart >= FAR_APART_MS);
  set(rate, own.bits_per_second ? rateText(own.bits_per_second / 8) : '…');
  if (end.firstChild) return;
  const button = Object.assign(make('button', 'small', 'End'), { type: 'button' });
  button.setAttribute('aria-label', `End the encoder of ${own.stream}`);
  button.addEventListener('click', () => askToEnd(own, button));
  end.append(button);
}

/** Asks, and ends an encoder. */
function askToEnd(own, button) {
  const dialog = byId('end');
  set(byId('end-title'), `End the encoder of ${own.stream} at ${own.address}?`);
  dialog.returnValue = '';
  dialog.onclose = async () => {
    if (dialog.returnValue !== 'end') return;
    button.disabled = true;
    try {
      await call(`encoders/${own.number}`, 'DELETE');
      complain('change', '');
      set(byId('said'), `The encoder of ${own.stream} was ended.`);
      byId('streams-title').focus();
      await look();
    } catch (error) {
      if (error instanceof Refused) lock();
      else complain('change', `The encoder of ${own.stream} could not be ended: ${error.message}`);
      button.disabled = false;
    }
  };
  dialog.showModal();
}

function showFailures(list) {
  byId('failed').hidden = list.length === 0;
  failures.show(list, (own) => `${own.address} ${own.reason}`, ({ head, cells: [when, times, why] }, own) => {
    set(head, `${own.address} (${own.protocol.toUpperCase()})`);
    set(when, timeText(own.unix_ms));
    set(times, String(own.times));
    set(why, own.reason);
  });
}

/** What an encoder is told, at the name by which this page was opened. */
function howTo(ports) {
  const all = [];
  for (const scheme of ['rtmp', 'rtmps'].filter((own) => ports[own])) {
    const server = `${scheme}://${location.hostname}:${ports[scheme]}/live`;
    all.push(['OBS', `server ${server}, stream key NAME?key=KEY`], ['ffmpeg', `ffmpeg -re -i FILE -c copy -f flv '${server}/NAME?key=KEY'`]);
  }
  for (const scheme of ['http', 'https'].filter((own) => ports[own])) {
    all.push(['ffmpeg, HLS by PUT', `ffmpeg -re -i FILE -c copy -f hls -method PUT ${scheme}://:KEY@${location.hostname}:${ports[scheme]}/live/NAME/index.m3u8`]);
  }
  return all;
}

/** Shows the encoders, and how others publish. The words are open as long as nobody publishes. */
function showEncoders(own) {
  byId('publishing').hidden = !own;
  if (!own) return;
  encoders.show(own.publishing, ({ number }) => number, showEncoder);
  byId('encoders').hidden = own.publishing.length === 0;
  const [how, all] = [byId('how'), howTo(own.ports)];
  how.hidden = all.length === 0;
  const list = how.querySelector('dl');
  if (list.children.length) return;
  how.open = own.publishing.length === 0;
  list.append(...all.flatMap(([name, text]) => {
    const words = make('dd', '');
    words.append(make('code', '', text));
    return [make('dt', '', name), words];
  }), make('dt', '', 'KEY'), make('dd', '', 'the key of ingest.keys; without keys and users ?key=KEY and :KEY@ are left out'));
}

function show(state) {
  set(byId('sum'), `node ${state.node.name}, ${roleText(state.node)}`);
  document.title = `${state.node.name} – RBLive control`;
  const takers = state.nodes.filter((node) => node.takes_streams && (node.id !== state.node.id || node.delivers));
  byId('none').hidden = state.sends.length > 0;
  byId('streams').hidden = state.sends.length === 0;
  sent.show(state.sends, (stream) => stream.id, (row, stream) => showStream(row, stream, takers));
  // What the node delivers itself comes from no other node.
  const receives = state.receives.filter((stream) => stream.from !== state.node.id);
  byId('received').hidden = receives.length === 0;
  arrived.show(receives, (stream) => stream.id, ({ head, cells: [from, rate, age, lost] }, stream) => {
    set(head, stream.name);
    const node = state.nodes.find((own) => own.id === stream.from)?.name ?? `node ${stream.from}`;
    set(from, stream.connected ? node : `${node} (not connected)`);
    showRate(rate, rateOf('received', stream));
    showAge(age, stream.age_ms);
    set(lost, stream.lost_bytes ? bytesText(stream.lost_bytes) : 'nothing');
  });
  showRemarks(state.encoders?.remarks ?? []);
  showFailures(state.encoders?.failures ?? []);
  showEncoders(state.encoders);
  showViewers(state.viewers);
  nodeRows.show(state.nodes, (node) => node.id, (row, node) => showNode(row, node, state));
  const there = new Set([...state.sends.map(({ id }) => `sent ${id}`), ...state.receives.map(({ id }) => `received ${id}`)]);
  for (const key of rates.keys()) if (!there.has(key)) rates.delete(key);
  showNow(state);
}

/** The page of viewers, at the name by which this page was opened. */
function showViewers(address) {
  byId('viewers').hidden = !address;
  if (!address) return;
  const url = new URL(address);
  url.hostname = location.hostname;
  byId('viewers').querySelector('a').href = url.href;
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
