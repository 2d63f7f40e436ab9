// A live stream by WebRTC: the offer, the answer, and how late the picture is.

/** How long a connection may take, and how long a picture may be missing, in milliseconds. */
const PATIENCE = 8000;

/** The server refuses the offer, or the connection fails. */
export class PeerError extends Error {
  constructor(status, text) {
    super(text);
    this.status = status;
  }
}

export class Peer {
  /** @param failed is called once, with an error, when the picture cannot go on. */
  constructor(video, failed) {
    this.video = video;
    this.failed = failed;
    this.connection = null;
    this.session = null;
    this.late = null;
    /** Whether a picture was shown. */
    this.played = false;
    /** What the server says about the sound, if there is none. */
    this.sound = null;
    this.timers = [];
  }

  static isThere() { return 'RTCPeerConnection' in window; }

  /** Offers itself to the stream at this address, and shows what comes. */
  async start(address) {
    const connection = new RTCPeerConnection();
    this.connection = connection;
    const stream = new MediaStream();
    for (const kind of ['video', 'audio']) connection.addTransceiver(kind, { direction: 'recvonly' });
    connection.addEventListener('track', ({ track }) => stream.addTrack(track));
    connection.addEventListener('connectionstatechange', () => {
      // 'disconnected' passes: browsers go on by themselves, or say 'failed'.
      if (['failed', 'closed'].includes(connection.connectionState)) this.fail(0, 'the connection is gone');
    });
    this.video.srcObject = stream;
    try {
      await connection.setLocalDescription(await connection.createOffer());
      const answer = await fetch(address, {
        method: 'POST', headers: { 'content-type': 'application/sdp' }, body: connection.localDescription.sdp,
      });
      const text = await answer.text();
      if (answer.status !== 201) throw new PeerError(answer.status, text.trim());
      this.session = new URL(answer.headers.get('location'), answer.url).href;
      this.sound = answer.headers.get('x-rblive-sound');
      if (this.connection !== connection) return this.leave();
      await connection.setRemoteDescription({ type: 'answer', sdp: text });
    } catch (error) {
      if (this.connection === connection) this.fail(error.status ?? 0, error.message);
      return;
    }
    this.watch();
  }

  /** Notes how late each picture is that is shown, where the browser says it. */
  measure() {
    if (!this.connection || !this.video.requestVideoFrameCallback) return;
    this.video.requestVideoFrameCallback((_, { rtpTimestamp }) => {
      if (rtpTimestamp !== undefined) this.late = lateness(rtpTimestamp);
      this.measure();
    });
  }

  /** Looks each second whether there is a picture. */
  watch() {
    this.measure();
    let [frames, since] = [0, performance.now()];
    this.timers.push(setInterval(async () => {
      const now = performance.now();
      const reports = this.connection ? await this.connection.getStats() : new Map();
      for (const own of reports.values()) {
        if (own.type !== 'inbound-rtp' || own.kind !== 'video') continue;
        if (own.framesDecoded > frames) [frames, since, this.played] = [own.framesDecoded, now, true];
      }
      if (now - since > PATIENCE && !this.video.paused) this.fail(0, 'no picture comes');
    }, 1000));
  }

  fail(status, text) {
    if (!this.connection) return;
    this.stop();
    this.failed(new PeerError(status, text));
  }

  stop() {
    this.timers.forEach(clearInterval);
    this.timers = [];
    const connection = this.connection;
    this.connection = null;
    this.video.srcObject = null;
    // The end of a connection that stands is told by the connection itself.
    if (connection?.connectionState === 'connected') this.session = null;
    if (connection) connection.close();
    this.leave();
  }

  /** Tells the server, which would find out by itself some seconds later. */
  leave() {
    if (this.session) fetch(this.session, { method: 'DELETE', keepalive: true }).catch(() => {});
    this.session = null;
  }
}

/** Seconds since a picture was made: its RTP time is that of the wall clock, in ticks of 90 kHz, without the bits above 32. */
function lateness(rtp) {
  const turn = 2 ** 32;
  const now = Math.round((performance.timeOrigin + performance.now()) * 90) % turn;
  const ticks = (now - rtp + turn) % turn;
  return ticks < turn / 2 ? ticks / 90000 : 0;
}
