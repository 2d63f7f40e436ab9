// Posters: the newest key frame of a stream. The server sends it as an MP4 file of one frame, and the browser decodes it.
/** The age at which a poster is fetched again, and the longest time for one, in milliseconds. */
const AGE = 10000;
const PATIENCE = 8000;
/** The width of the copy that stays. */
const WIDTH = 480;

/** By the element that shows it: its address, whether the stream is live, and when the poster was asked for. */
const posters = new Map();
/** The elements in sight. */
const seen = new Set();
/** One poster at a time is fetched, as phones have few decoders. */
let queue = Promise.resolve();

const observer = new IntersectionObserver((entries) => {
  for (const { target, isIntersecting } of entries) {
    if (isIntersecting) seen.add(target);
    else seen.delete(target);
    renew(target);
  }
}, { rootMargin: '100px' });

/** Says which poster belongs in an element. It is fetched while the element is in sight, and again while the stream is live. */
export function showPoster(element, address, isLive) {
  const known = posters.get(element);
  posters.set(element, { address, isLive, at: known?.at });
  if (known) renew(element);
  else observer.observe(element);
}

/** Forgets an element that is gone. */
export function dropPoster(element) {
  observer.unobserve(element);
  posters.delete(element);
  seen.delete(element);
}

function renew(element) {
  const poster = posters.get(element);
  if (!poster || !seen.has(element) || document.hidden) return;
  const isNew = poster.at !== undefined && (!poster.isLive || performance.now() - poster.at < AGE);
  if (isNew) return;
  poster.at = performance.now();
  // Without a poster the letter stays, and a later one may come.
  queue = queue.then(() => draw(element, poster.address)).catch(() => {});
}

function draw(element, address) {
  return new Promise((done, failed) => {
    const video = Object.assign(document.createElement('video'), { muted: true, playsInline: true, preload: 'auto' });
    const end = (settle) => () => {
      clearTimeout(timer);
      video.onloadeddata = video.onerror = null;
      settle();
      video.removeAttribute('src');
      video.load();
    };
    const timer = setTimeout(end(failed), PATIENCE);
    video.onerror = end(failed);
    video.onloadeddata = end(() => {
      put(element, video);
      done();
    });
    video.src = address;
  });
}

function put(element, video) {
  const canvas = element.querySelector('canvas') ?? document.createElement('canvas');
  canvas.setAttribute('aria-hidden', 'true');
  canvas.width = Math.min(WIDTH, video.videoWidth);
  canvas.height = Math.round(canvas.width * video.videoHeight / video.videoWidth);
  canvas.getContext('2d').drawImage(video, 0, 0, canvas.width, canvas.height);
  if (!canvas.isConnected) element.querySelector('.letter').after(canvas);
}
