// The player: plays one stream, says in words what hinders it, and goes on by itself when that is over.
import { Peer } from './peer.js';

/** The first wait before another attempt, and the longest one, in milliseconds. */
const RETRY = [1000, 8000];

/** Attempts to go on by WebRTC before the stream plays by HLS. */
const PEER_TRIES = 3;

const WORDS = {
  loading: 'Loading the stream.',
  waiting: 'Waiting for the picture.',
  playing: 'Playing.',
  paused: 'Paused.',
  blocked: 'The browser waits for you to begin.',
  stalled: 'The encoder sends nothing at the moment. The picture goes on when it returns.',
  ended: 'The stream has ended. It plays again by itself if it returns.',
  missing: 'There is no such stream at the moment. It plays here as soon as it begins.',
  refused: 'This stream is for invited viewers. Open it with the whole address that you were given: the end of it is a token.',
  full: 'The stream has as many viewers as it may have. Trying again.',
  offline: 'The server does not answer. Trying again.',
  broken: 'The stream cannot be read. Trying again.',
  codec: 'This browser cannot play the codecs of this stream.',
  unsupported: 'This browser cannot play HLS. Another player can open the address below.',
};

/** What is different of a recording. */
const KEPT = {
  loading: 'Loading the recording.',
  ended: 'The recording is over.',
  missing: 'There is no such recording, or it was removed.',
  refused: 'This recording is for invited viewers. Open it with the whole address that you were given: the end of it is a token.',
  codec: 'This browser cannot play the codecs of this recording.',
  broken: 'The recording cannot be read. Trying again.',
};

/** States in which the veil shows that something goes on. */
const BUSY = new Set(['loading', 'waiting', 'full', 'offline', 'broken']);

export class Player {
  /** @param changed is called with the state and its words; `qualities` when others can be chosen, or another is played. */
  constructor(video, changed, qualities = () => {}) {
    this.video = video;
    this.changed = changed;
    this.qualities = qualities;
    this.hls = null;
    this.peer = null;
    /** Whether live streams are watched by WebRTC, and what hinders that with this one. */
    this.quick = new URLSearchParams(location.search).get('latency') === 'webrtc';
    this.hindered = '';
    this.name = null;
    /** The beginning of a recording; null: the live stream. */
    this.begin = null;
    this.health = null;
    this.state = null;
    this.tries = 0;
    this.timer = 0;
    this.recovered = 0;
    video.addEventListener('playing', () => { this.tries = 0; this.become('playing'); });
    video.addEventListener('pause', () => { if (this.state === 'playing' && !video.ended) this.become('paused'); });
    video.addEventListener('ended', () => this.become('ended'));
    video.addEventListener('waiting', () => {
      if (this.state === 'playing') this.become(this.health === 'stalled' ? 'stalled' : 'waiting');
    });
  }

  static isBusy(state) { return BUSY.has(state); }

  become(state) {
    if (this.state === state) return;
    this.state = state;
    this.changed(state, (this.begin && KEPT[state]) || WORDS[state]);
  }

  address(file) {
    const at = this.begin ? `vod/${this.name}/${this.begin}` : `live/${this.name}`;
    return `${at}/${file}${location.search}`;
  }

  /** Plays a live stream, or its recording that began at `begin`. */
  play(name, begin = null) {
    if (this.name === name && this.begin === begin) return;
    this.stop();
    [this.name, this.begin] = [name, begin];
    this.load();
  }

  stop() {
    this.unload();
    Object.assign(this, { name: null, begin: null, health: null, state: null, tries: 0, hindered: '' });
  }

  unload() {
    clearTimeout(this.timer);
    if (this.hls) this.hls.destroy();
    if (this.peer) this.peer.stop();
    [this.hls, this.peer] = [null, null];
    this.qualities();
    this.video.removeAttribute('src');
    this.video.load();
  }

  load() {
    this.unload();
    this.become('loading');
    if (this.quick && !this.begin && !this.hindered && Peer.isThere()) this.loadPeer();
    else if (window.Hls && Hls.isSupported()) this.loadHls();
    else if (this.video.canPlayType('application/vnd.apple.mpegurl')) this.loadNative();
    else this.become('unsupported');
  }

  loadHls() {
    const hls = new Hls({
      lowLatencyMode: true, liveDurationInfinity: true, backBufferLength: 30, maxLiveSyncPlaybackRate: 1.1,
    });
    this.hls = hls;
    hls.on(Hls.Events.ERROR, (_, error) => { if (error.fatal && this.hls === hls) this.failed(error); });
    hls.on(Hls.Events.MANIFEST_PARSED, () => { this.qualities(); this.start(); });
    hls.on(Hls.Events.LEVELS_UPDATED, () => this.qualities());
    hls.on(Hls.Events.LEVEL_SWITCHED, () => this.qualities());
    hls.loadSource(this.address('index.m3u8'));
    hls.attachMedia(this.video);
  }

  /** Another server part, the same stream. What refuses it plays by HLS. */
  loadPeer() {
    const peer = new Peer(this.video, (error) => { if (this.peer === peer) this.lost(error); });
    this.peer = peer;
    peer.start(this.address('whep'));
    this.start();
  }

  lost({ status, message }) {
    if (status === 403) return this.become('refused');
    if (status === 404) return this.again('missing');
    if (status === 503) return this.again('full');
    if (this.health === 'stalled') return this.again('stalled');
    // What went before is tried again: the node restarts, or the network was away for a while.
    if (!status && (this.peer.played || this.tries > 0) && this.tries < PEER_TRIES) return this.again('offline');
    this.hindered = message;
    this.load();
  }

  /** Watches live streams by WebRTC from now on, or not. */
  hurry(quick) {
    [this.quick, this.hindered] = [quick, ''];
    if (this.name && !this.begin) this.load();
  }

  /** What is to be known about the way in words, if anything. */
  hint() {
    if (this.hindered) return `Low delay is not possible: ${this.hindered}.`;
    return this.peer?.sound ? 'No sound: what the encoder sends does not go with low delay. Play with more delay to hear it.' : '';
  }

  /** Safari on a phone has no media source, and plays HLS by itself. */
  loadNative() {
    this.video.onerror = () => this.again('broken');
    this.video.src = this.address('index.m3u8');
    this.start();
  }

  /** Browsers begin by themselves without sound only. */
  start() { this.video.play().catch(() => { if (this.state === 'loading') this.become('blocked'); }); }

  failed(error) {
    if (error.details === Hls.ErrorDetails.MANIFEST_INCOMPATIBLE_CODECS_ERROR) {
      this.become('codec');
      return;
    }
    if (error.type === Hls.ErrorTypes.MEDIA_ERROR && performance.now() - this.recovered > 5000) {
      this.recovered = performance.now();
      this.hls.recoverMediaError();
      return;
    }
    const status = error.response ? error.response.code : undefined;
    if (status === 403) this.become('refused');
    else if (status === 404 && this.begin) this.become('missing');
    else if (status === 404) this.again('missing');
    else if (this.health === 'stalled') this.again('stalled');
    else if (status === 503) this.again('full');
    else if (error.type === Hls.ErrorTypes.NETWORK_ERROR && !status) this.again('offline');
    else this.again('broken');
  }

  again(state) {
    this.become(state);
    this.unload();
    const wait = Math.min(RETRY[0] * 2 ** this.tries, RETRY[1]);
    this.tries += 1;
    this.timer = setTimeout(() => this.retry(), wait);
  }

  /** Another attempt, behind the words about the last one. */
  retry() {
    clearTimeout(this.timer);
    const state = this.state;
    this.load();
    if (BUSY.has(state) || state === 'missing' || state === 'stalled') this.become(state);
  }

  /** Takes what the list says about the stream: live, stalled, ended; null if it has no such stream. */
  hear(health) {
    if (this.begin) return;
    const before = this.health;
    this.health = health;
    const gone = this.state === 'ended' || this.state === 'missing' || (this.state === 'stalled' && !this.hls);
    if (health === 'live' && gone) this.retry();
    else if (health === 'live' && before === 'stalled' && this.state === 'stalled') this.become('waiting');
    else if (health === 'stalled' && this.state === 'waiting') this.become('stalled');
    else if (health === 'ended' && (this.state === 'stalled' || this.state === 'waiting')) this.become('ended');
    else if (health === null && before === 'ended' && this.state !== 'playing') this.become('ended');
  }

  /** Seconds behind the live picture, if they are known. */
  latency() {
    if (this.peer) return this.peer.late;
    const own = this.hls && !this.begin ? this.hls.latency : 0;
    return own > 0 ? own : null;
  }

  isLate() {
    const target = this.hls ? this.hls.targetLatency : null;
    return target !== null && this.latency() !== null && this.latency() > target + 5;
  }

  /** Plays a recording from its beginning. */
  replay() {
    this.video.currentTime = 0;
    this.start();
  }

  goLive() {
    const at = this.hls ? this.hls.liveSyncPosition : null;
    if (at) this.video.currentTime = at;
    this.start();
  }

  /** The qualities of the stream, the best one first: what plays, and what was chosen. The key -1 stands for a choice by speed. */
  choices() {
    if (!this.hls) return [];
    const name = ({ height, bitrate }) => `${height ? `${height}p` : 'Sound'}, ${(bitrate / 1e6).toFixed(1)} Mbit/s`;
    const { levels, currentLevel, manualLevel } = this.hls;
    const own = levels.map((level, key) => ({ key, name: name(level), bitrate: level.bitrate, chosen: key === manualLevel }));
    own.sort((a, b) => b.bitrate - a.bitrate);
    const now = levels[currentLevel];
    const auto = now && manualLevel < 0 && now.height ? `Automatic (${now.height}p)` : 'Automatic';
    return [{ key: -1, name: auto, chosen: manualLevel < 0 }, ...own];
  }

  /** Plays a quality of {@link choices} from the next segment on. */
  choose(key) {
    if (this.hls) this.hls.nextLevel = key;
    this.qualities();
  }

  frames() {
    const { totalVideoFrames: shown = 0, droppedVideoFrames: dropped = 0 } = this.video.getVideoPlaybackQuality?.() ?? {};
    return { shown, dropped };
  }

  buffered() {
    const { buffered, currentTime } = this.video;
    return buffered.length ? Math.max(0, buffered.end(buffered.length - 1) - currentTime) : 0;
  }
}
