// Lists the streams, and plays one of them. The fragment of the address names the stream that plays.
'use strict';

const byId = (id) => document.getElementById(id);
const video = byId('video');
const query = location.search;
let hls = null;
let playing = null;
let before = new Map();

function say(text) {
  byId('status').textContent = text;
}

function play(name) {
  if (playing === name) return;
  playing = name;
  byId('player').hidden = false;
  byId('playing').textContent = name;
  say('Loading.');
  if (hls) hls.destroy();
  hls = null;
  const address = `/live/${name}/index.m3u8${query}`;
  if (window.Hls && Hls.isSupported()) {
    hls = new Hls({ lowLatencyMode: true, liveDurationInfinity: true });
    hls.on(Hls.Events.ERROR, (_, error) => {
      if (!error.fatal) return;
      say(`The stream stopped (${error.details}). Trying again.`);
      if (error.type === Hls.ErrorTypes.MEDIA_ERROR) hls.recoverMediaError();
      else setTimeout(() => { if (playing === name) { playing = null; play(name); } }, 2000);
    });
    hls.on(Hls.Events.MANIFEST_PARSED, () => start());
    hls.loadSource(address);
    hls.attachMedia(video);
  } else if (video.canPlayType('application/vnd.apple.mpegurl')) {
    video.src = address;
    start();
  } else {
    say('This browser plays no HLS.');
  }
}

function start() {
  video.play().then(() => say('Playing, without sound until you turn it on.'), () => say('Press play.'));
}

function rate(stream) {
  const last = before.get(stream.name);
  const now = performance.now();
  before.set(stream.name, { bytes: stream.received_bytes, at: now });
  if (!last || now - last.at < 500) return null;
  return (stream.received_bytes - last.bytes) * 8 / ((now - last.at) / 1000);
}

function about(stream) {
  const bits = rate(stream);
  const parts = [stream.health, `${stream.viewers} ${stream.viewers === 1 ? 'viewer' : 'viewers'}`];
  if (bits !== null) parts.push(`${(bits / 1e6).toFixed(1)} Mbit/s`);
  const sizes = stream.renditions.filter((own) => own.height).map((own) => `${own.height}p`);
  if (sizes.length) parts.push([...new Set(sizes)].join(', '));
  return parts.join(' · ');
}

// Keeps the tiles that exist, so that the keyboard's focus stays where it is.
function show(streams) {
  const list = byId('streams');
  const tiles = new Map([...list.children].map((tile) => [tile.dataset.name, tile]));
  for (const stream of streams) {
    let tile = tiles.get(stream.name);
    tiles.delete(stream.name);
    if (!tile) {
      tile = document.createElement('li');
      tile.dataset.name = stream.name;
      const button = document.createElement('button');
      button.type = 'button';
      button.append(Object.assign(document.createElement('span'), { className: 'name', textContent: stream.name }));
      button.append(Object.assign(document.createElement('span'), { className: 'about' }));
      button.addEventListener('click', () => { location.hash = encodeURIComponent(stream.name); });
      tile.append(button);
      list.append(tile);
    }
    tile.querySelector('.about').textContent = about(stream);
    tile.firstChild.setAttribute('aria-pressed', String(stream.name === playing));
  }
  for (const tile of tiles.values()) tile.remove();
  const empty = byId('empty');
  const text = streams.length ? '' : 'There is no stream yet.';
  if (empty.textContent !== text) empty.textContent = text;
}

async function refresh() {
  try {
    const answer = await fetch('/streams');
    show((await answer.json()).streams);
  } catch {
    byId('empty').textContent = 'The server does not answer.';
  }
  setTimeout(refresh, 2000);
}

function fromAddress() {
  const name = decodeURIComponent(location.hash.slice(1));
  if (name) play(name);
}

window.addEventListener('hashchange', fromAddress);
fromAddress();
refresh();
