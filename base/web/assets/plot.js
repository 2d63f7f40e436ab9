// Plots without a library: lines over time in SVG, with axes, and the values in words for those who do not see them.

const NS = 'http://www.w3.org/2000/svg';
const draw = (tag, attributes, text) => {
  const own = document.createElementNS(NS, tag);
  for (const [name, value] of Object.entries(attributes)) own.setAttribute(name, value);
  if (text !== undefined) own.textContent = text;
  return own;
};

/** The next of 1, 2, 5, 10, 20 … that is not less. */
function decimal(value) {
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 5, 10].find((step) => step * power >= value * 0.999) * power;
}

/** The next power of two that is not less, and at least two: for bytes. */
export const binary = (value) => 2 ** Math.max(1, Math.ceil(Math.log2(value)));

const LEFT = 56, RIGHT = 8, TOP = 8, BOTTOM = 22;

/**
 * A plot in a figure.
 * @param title names it, format writes a value (a short one for the axis), spans are the lines: `{ name, of(sample) }`, and round
 * rounds the largest value up to the end of the axis.
 */
export class Plot {
  constructor(figure, title, format, spans, round = decimal) {
    Object.assign(this, { title, format, spans, round, samples: [], span: 600000, at: null });
    this.caption = Object.assign(document.createElement('figcaption'), { textContent: title });
    this.svg = draw('svg', { role: 'img' });
    figure.append(this.caption, this.svg);
    this.svg.addEventListener('pointermove', (event) => this.point(event));
    this.svg.addEventListener('pointerleave', () => { this.at = null; this.show(); });
    new ResizeObserver(() => this.show()).observe(this.svg);
  }

  set(samples, span) {
    Object.assign(this, { samples, span });
    this.show();
  }

  point(event) {
    const { left, width } = this.svg.getBoundingClientRect();
    const end = this.samples.at(-1)?.unix_ms ?? 0;
    const time = end - (1 - (event.clientX - left - LEFT) / (width - LEFT - RIGHT)) * this.span;
    const near = (sample) => Math.abs(sample.unix_ms - time);
    this.at = this.samples.reduce((best, own) => (!best || near(own) < near(best) ? own : best), null);
    this.show();
  }

  show() {
    const { width, height } = this.svg.getBoundingClientRect();
    if (!width || !this.samples.length) return;
    const most = Math.max(...this.samples.flatMap((sample) => this.spans.map(({ of }) => of(sample))));
    const top = this.round(most || 1);
    const end = this.samples.at(-1).unix_ms;
    const x = (sample) => LEFT + (width - LEFT - RIGHT) * (1 - (end - sample.unix_ms) / this.span);
    const y = (value) => TOP + (height - TOP - BOTTOM) * (1 - value / top);
    const parts = this.axes(width, height, top, y);
    this.spans.forEach(({ of }, index) => {
      const line = this.samples.map((own) => `${x(own).toFixed(1)},${y(of(own)).toFixed(1)}`).join('L');
      const kind = 'ab'[index];
      if (index === 0) parts.push(draw('path', { class: 'area a', d: `M${x(this.samples[0])},${y(0)}L${line}L${x(this.samples.at(-1))},${y(0)}Z` }));
      parts.push(draw('path', { class: `line ${kind}`, d: `M${line}` }));
    });
    if (this.at) parts.push(draw('path', { class: 'at', d: `M${x(this.at)},${TOP}V${height - BOTTOM}` }));
    this.svg.setAttribute('viewBox', `0 0 ${width} ${height}`);
    this.svg.replaceChildren(...parts);
    this.say(most);
  }

  axes(width, height, top, y) {
    const parts = [];
    for (const share of [0, 0.5, 1]) {
      parts.push(draw('path', { class: 'grid', d: `M${LEFT},${y(top * share)}H${width - RIGHT}` }));
      parts.push(draw('text', { x: LEFT - 6, y: y(top * share) + 4, 'text-anchor': 'end' }, this.format(top * share, true)));
    }
    for (const [share, anchor] of [[0, 'start'], [0.5, 'middle'], [1, 'end']]) {
      const minutes = this.span * (1 - share) / 60000;
      const text = minutes >= 1 ? `${Number(minutes.toFixed(1))} min ago` : minutes ? `${Math.round(minutes * 60)} s ago` : 'now';
      parts.push(draw('text', { x: LEFT + (width - LEFT - RIGHT) * share, y: height - 4, 'text-anchor': anchor }, text));
    }
    return parts;
  }

  /** The values at the pointer, or the newest ones. */
  say(most) {
    const sample = this.at ?? this.samples.at(-1);
    const title = document.createElement('b');
    title.textContent = this.at ? `${this.title}, ${new Date(sample.unix_ms).toLocaleTimeString()}` : this.title;
    const values = this.spans.map(({ name, of }, index) => {
      const own = document.createElement('span');
      own.className = 'ab'[index];
      own.textContent = `${name} ${this.format(of(sample))}`;
      return own;
    });
    this.caption.replaceChildren(title, ...values);
    const newest = this.samples.at(-1);
    const words = this.spans.map(({ name, of }) => `${name} ${this.format(of(newest))}`).join(', ');
    this.svg.setAttribute('aria-label', `${this.title}: now ${words}; at most ${this.format(most)}`);
  }
}

/** A small line without axes. */
export function spark(values) {
  const svg = draw('svg', { viewBox: '0 0 60 16', preserveAspectRatio: 'none', 'aria-hidden': 'true' });
  const top = Math.max(...values, 1);
  const points = values.map((value, at) => `${(at * 60 / Math.max(1, values.length - 1)).toFixed(1)},${(15 - 14 * value / top).toFixed(1)}`);
  if (points.length > 1) svg.append(draw('path', { d: `M${points.join('L')}` }));
  return svg;
}
