// The viewers' page: lists streams and recordings, and plays the one that the address names (`#/NAME`, `#vod/NAME/BEGIN`; `#bare/NAME`, where
// the player is alone).
import { Player } from './player.js';
import { dropPoster, showPoster } from './poster.js';
import { Recordings, began, clock } from './recordings.js';

/** The time between two looks at the list, in milliseconds. */
const EVERY = 2000;
/** Looks at the streams before another one at the recordings. */
const SELDOM = 5;
/** A field to search in is there from this many streams on. */
const MANY = 9;

const byId = (id) => document.getElementById(id);
const make = (tag, className, text = '') =>
  Object.assign(document.createElement(tag), { className, textContent: text });
const set = (element, text) => { if (element.textContent !== text) element.textContent = text; };
const video = byId('video');

const HEALTH = { live: 'LIVE', starting: 'Starting', stalled: 'Interrupted', ended: 'Ended' };
/** The streams that play come before those that wait or are over. */
const ORDER = Object.keys(HEALTH);
let streams = [];
const recordings = new Recordings(byId('recordings'));

// --- The player ----------------------------------------------------------------

const ACTS = {
  blocked: ['Play', () => player.start()],
  offline: ['Try now', () => player.retry()],
  broken: ['Try now', () => player.retry()],
  full: ['Try now', () => player.retry()],
};

const player = new Player(video, (state, words) => {
  const quiet = state === 'playing' || state === 'paused';
  // What is over has no sound to turn on.
  byId('sound').hidden = state === 'ended';
  const veil = byId('veil');
  veil.hidden = quiet;
  veil.classList.toggle('busy', Player.isBusy(state));
  veil.classList.toggle('light', state === 'waiting');
  set(byId('said'), words);
  set(byId('status'), words);
  const act = byId('act');
  act.hidden = !(state in ACTS);
  [act.textContent, act.onclick] = ACTS[state] ?? ['', null];
  if (state !== 'ended' || !player.begin) return;
  act.hidden = false;
  [act.textContent, act.onclick] = ['Play again', () => player.replay()];
}, showQualities);

/** The choice of quality is there if there are at least two. */
function showQualities() {
  const choices = player.choices();
  byId('quality-label').hidden = choices.length < 3;
  const own = [...byId('quality').options];
  const same = own.length === choices.length && choices.every(({ key }, index) => own[index].value === String(key));
  if (!same) byId('quality').replaceChildren(...choices.map(({ key, name }) => new Option(name, key)));
  choices.forEach(({ name, chosen }, index) => {
    const option = byId('quality').options[index];
    set(option, name);
    option.selected = chosen;
  });
}
byId('quick').addEventListener('change', (event) => { player.hurry(event.target.checked); tell(); });
byId('quality').addEventListener('change', (event) => player.choose(Number(event.target.value)));

function watch({ name, begin, bare }) {
  document.documentElement.classList.toggle('bare', Boolean(bare));
  document.documentElement.classList.toggle('watching', Boolean(name));
  byId('player').hidden = !name;
  document.title = name ? `${name} – RBLive` : 'RBLive';
  if (!name) return player.stop();
  set(byId('title'), name);
  player.play(name, begin);
  listAddresses();
  tell();
}

/** The stream or the recording in the address; names need no escapes. */
function named() {
  const hash = decodeURIComponent(location.hash);
  const kept = /^#vod\/(.+)\/([^/]+)$/.exec(hash);
  if (kept) return { name: kept[1], begin: kept[2] };
  const live = /^#(bare)?\/(.+)$/.exec(hash);
  return { name: live?.[2] ?? '', begin: null, bare: live?.[1] };
}

function fromAddress() {
  const asked = named();
  watch(asked);
  mark();
  if (!asked.name) return;
  byId('title').focus({ preventScroll: true });
  window.scrollTo({ top: 0 });
}

byId('close').addEventListener('click', () => {
  const { name, begin } = named();
  history.pushState(null, '', location.pathname + location.search);
  fromAddress();
  const link = begin ? recordings.link(name, begin) : tiles.get(name)?.link;
  (link ?? byId('streams-title')).focus();
});
byId('edge').addEventListener('click', () => player.goLive());
byId('sound').addEventListener('click', () => { video.muted = !video.muted; });
video.addEventListener('volumechange', () => {
  byId('sound').textContent = video.muted ? 'Turn the sound on' : 'Turn the sound off';
  byId('sound').classList.toggle('main', video.muted);
});

const detail = (name) => {
  const at = byId('details').querySelector(`[data-of="${name}"]`);
  if (at) return at;
  const own = make('dd', '');
  own.dataset.of = name;
  byId('details').append(make('dt', '', name), own);
  return own;
};

function listAddresses() {
  byId('details').replaceChildren();
  const live = ['Codecs', 'Behind live'];
  for (const name of ['Picture', ...(player.begin ? [] : live), 'Buffered', 'Frames']) detail(name);
  const files = [['HLS', 'index.m3u8'], ['DASH', 'manifest.mpd']];
  const texts = (player.begin ? files.slice(0, 1) : files).map(([name, file]) => [name, new URL(player.address(file), location).href]);
  const bare = new URL(`#bare/${player.name}`, location).href;
  if (!player.begin) texts.push(['Embed', `<iframe src="${bare}" allow="autoplay; fullscreen" width="640" height="360"></iframe>`]);
  for (const [name, address] of texts) {
    const copy = make('button', '', 'Copy');
    copy.type = 'button';
    copy.setAttribute('aria-label', name === 'Embed' ? 'Copy what other pages embed' : `Copy the ${name} address`);
    copy.addEventListener('click', async () => {
      try {
        await navigator.clipboard.writeText(address);
        copy.textContent = 'Copied';
      } catch {
        copy.textContent = 'Select it and copy it by hand';
      }
      setTimeout(() => { copy.textContent = 'Copy'; }, 2000);
    });
    detail(name).append(make('code', '', address), copy);
  }
}

const seconds = (value) => `${value.toFixed(value < 1 ? 2 : 1)} s`;
const size = (stream) => {
  const tall = stream.renditions.filter((own) => own.height).sort((a, b) => b.height - a.height)[0];
  return tall ? { short: `${tall.height}p`, long: `${tall.width} × ${tall.height}` } : null;
};
const rate = (stream) => {
  const bits = Math.max(0, ...stream.renditions.map((own) => own.bits_per_second ?? 0));
  return bits ? `${(bits / 1e6).toFixed(1)} Mbit/s` : '';
};
const viewers = (stream) => `${stream.viewers} ${stream.viewers === 1 ? 'viewer' : 'viewers'}`;

/** What is known about the stream that plays. */
function tell() {
  if (!player.name) return;
  if (player.begin) return tellRecording();
  const stream = streams.find((own) => own.name === player.name);
  const late = player.latency();
  const facts = stream ? [viewers(stream), rate(stream), size(stream)?.short] : [];
  if (late !== null && stream?.health === 'live') facts.push(`${seconds(late)} behind live`);
  const badge = stream ? [make('span', `badge ${stream.health}`, HEALTH[stream.health])] : [];
  byId('facts').replaceChildren(...badge, ...facts.filter(Boolean).map((text) => make('span', '', text)));
  byId('edge').hidden = !player.isLate();
  byId('quick-label').hidden = !stream?.webrtc;
  byId('quick').checked = player.quick;
  tellHint();
  tellDetails(stream, late);
}

/** What hinders the low delay that was asked for. */
function tellHint() {
  const hint = player.hint();
  byId('hint').hidden = !hint;
  set(byId('hint'), hint);
}

/** What is known about the recording that plays. */
function tellRecording() {
  const own = recordings.find(player.name, player.begin);
  const facts = [`Recorded ${began(player.begin)}`, own && clock(own.seconds)];
  byId('facts').replaceChildren(...facts.filter(Boolean).map((text) => make('span', '', text)));
  for (const id of ['edge', 'quick-label', 'hint']) byId(id).hidden = true;
  tellDetails(null, null);
}

function tellDetails(stream, late) {
  if (!byId('more').open) return;
  const { shown, dropped } = player.frames();
  const { videoWidth: width, videoHeight: height } = video;
  if (player.begin) {
    set(detail('Picture'), width ? `${width} × ${height}` : 'none');
    set(detail('Buffered'), seconds(player.buffered()));
    set(detail('Frames'), `${shown} shown, ${dropped} dropped`);
    return;
  }
  set(detail('Picture'), (stream && size(stream)?.long) || 'none');
  set(detail('Codecs'), stream?.renditions.map((own) => own.codecs).filter(Boolean).join('; ') || 'unknown');
  set(detail('Behind live'), late === null || stream?.health !== 'live' ? 'unknown' : seconds(late));
  set(detail('Buffered'), seconds(player.buffered()));
  set(detail('Frames'), `${shown} shown, ${dropped} dropped`);
}
byId('more').addEventListener('toggle', tell);
setInterval(tell, 1000);

// --- The list ------------------------------------------------------------------

/** The tiles by name. A tile stays while its stream does, so that the keyboard's focus stays where it is. */
const tiles = new Map();

const hue = (name) => [...name].reduce((sum, letter) => (sum * 31 + letter.codePointAt(0)) % 360, 7);

function makeTile(name) {
  const tile = { item: make('li', ''), link: make('a', 'tile'), picture: make('span', 'picture') };
  tile.link.href = `#/${name}`;
  const letter = make('span', 'letter', name.split('/').pop().slice(0, 1).toUpperCase());
  letter.setAttribute('aria-hidden', 'true');
  letter.style.setProperty('--hue', hue(name));
  tile.badge = make('span', 'badge');
  tile.viewers = make('span', 'chip viewers');
  tile.size = make('span', 'chip size');
  tile.rate = make('span', 'rate');
  tile.picture.append(letter, tile.badge, tile.viewers, tile.size);
  const words = make('span', 'words');
  words.append(make('span', 'name', name), tile.rate);
  tile.link.append(tile.picture, words);
  tile.item.append(tile.link);
  return tile;
}

function showTile(stream, place, wanted) {
  let tile = tiles.get(stream.name);
  if (!tile) {
    tile = makeTile(stream.name);
    tiles.set(stream.name, tile);
  }
  const before = byId('streams').children[place] ?? null;
  // What is at its place stays there, and so does what has the keyboard's focus.
  const stays = before === tile.item || (tile.item.isConnected && tile.item.contains(document.activeElement));
  if (!stays) byId('streams').insertBefore(tile.item, before);
  tile.item.hidden = !wanted;
  set(tile.badge, HEALTH[stream.health]);
  tile.badge.className = `badge ${stream.health}`;
  set(tile.viewers, viewers(stream));
  tile.size.hidden = !size(stream);
  set(tile.size, size(stream)?.short ?? '');
  set(tile.rate, [rate(stream), stream.low_latency ? 'low latency' : ''].filter(Boolean).join(' · '));
  tile.picture.classList.toggle('off', stream.health !== 'live');
  if (wanted && size(stream) && stream.health !== 'starting') showPoster(tile.picture, `live/${stream.name}/poster.mp4${location.search}`, stream.health === 'live');
}

function mark() {
  for (const [name, tile] of tiles) {
    if (name === player.name && !player.begin) tile.link.setAttribute('aria-current', 'true');
    else tile.link.removeAttribute('aria-current');
  }
  recordings.mark(player.name, player.begin);
}

function show() {
  const wanted = byId('filter').value.trim().toLowerCase();
  byId('filter').hidden = Math.max(streams.length, recordings.all.length) < MANY && !wanted;
  const there = new Set(streams.map((stream) => stream.name));
  for (const [name, tile] of tiles) {
    if (there.has(name)) continue;
    dropPoster(tile.picture);
    tile.item.remove();
    tiles.delete(name);
  }
  let shown = 0;
  streams.forEach((stream, place) => {
    const own = stream.name.toLowerCase().includes(wanted);
    shown += own;
    showTile(stream, place, own);
  });
  mark();
  byId('empty').hidden = shown > 0;
  set(byId('empty-title'), streams.length ? 'No such stream' : 'No stream yet');
  set(byId('empty-text'), streams.length
    ? `None of the ${streams.length} streams has a name with “${wanted}”.`
    : 'A stream appears here by itself as soon as an encoder publishes it.');
  byId('how').hidden = streams.length > 0;
  const live = streams.filter((stream) => stream.health === 'live').length;
  const all = streams.reduce((sum, stream) => sum + stream.viewers, 0);
  set(byId('sum'), streams.length ? `${live} live · ${viewers({ viewers: all })}` : '');
  set(byId('count'), wanted ? `${shown} of ${streams.length} streams` : `${streams.length} streams`);
}
byId('filter').addEventListener('input', () => {
  show();
  recordings.filter(byId('filter').value.trim().toLowerCase());
  mark();
});

/** The server has a list only for viewers with a token. */
class Refused extends Error {}

let looks = 0;

async function refresh() {
  const trouble = byId('trouble');
  try {
    const answer = await fetch(`streams${location.search}`);
    if (answer.status === 403) throw new Refused();
    if (!answer.ok) throw new Error(`status ${answer.status}`);
    ({ streams } = await answer.json());
    streams.sort((a, b) => ORDER.indexOf(a.health) - ORDER.indexOf(b.health));
    if (looks % SELDOM === 0) await recordings.refresh();
    looks += 1;
    trouble.hidden = true;
    show();
    player.hear(streams.find((stream) => stream.name === player.name)?.health ?? null);
    tell();
  } catch (error) {
    set(trouble, error instanceof Refused
      ? 'The list of streams is for invited viewers. Open the page with the whole address that you were given: a part of it is a token.'
      : 'The server does not answer. What is below may have changed; the page tries again by itself.');
    trouble.hidden = false;
  }
  setTimeout(refresh, document.hidden ? 5 * EVERY : EVERY);
}

window.addEventListener('hashchange', fromAddress);
fromAddress();
refresh();
