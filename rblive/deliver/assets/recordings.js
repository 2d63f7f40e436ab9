// The recordings: lists what was kept, the newest first. `#vod/NAME/BEGIN` is the address of one.

/** How many are shown before somebody asks for all. */
const FIRST = 12;

const make = (tag, className, text = '') =>
  Object.assign(document.createElement(tag), { className, textContent: text });
const set = (element, text) => { if (element.textContent !== text) element.textContent = text; };

const two = (number) => String(number).padStart(2, '0');

/** A length in seconds, as 1:02:03 or 2:03. */
export function clock(seconds) {
  const whole = Math.round(seconds);
  const [h, m, s] = [Math.floor(whole / 3600), Math.floor(whole / 60) % 60, whole % 60];
  return h ? `${h}:${two(m)}:${two(s)}` : `${m}:${two(s)}`;
}

/** The same in words, which screen readers read well. */
function spoken(seconds) {
  const whole = Math.round(seconds);
  const units = [[Math.floor(whole / 3600), 'hour'], [Math.floor(whole / 60) % 60, 'minute'], [whole % 60, 'second']];
  const words = units.filter(([count]) => count).map(([count, unit]) => `${count} ${unit}${count === 1 ? '' : 's'}`);
  return words.join(' ') || '0 seconds';
}

/** When a recording began, in the viewer's time: its name says it in UTC. */
export function began(begin) {
  const parts = /^(\d{4})(\d\d)(\d\d)T(\d\d)(\d\d)(\d\d)Z/.exec(begin);
  if (!parts) return begin;
  const [, year, month, day, hour, minute, second] = parts.map(Number);
  const date = new Date(Date.UTC(year, month - 1, day, hour, minute, second));
  return date.toLocaleString(undefined, { dateStyle: 'medium', timeStyle: 'medium' });
}

const size = (bytes) => (bytes < 1e9 ? `${(bytes / 1e6).toFixed(1)} MB` : `${(bytes / 1e9).toFixed(1)} GB`);

export class Recordings {
  /** @param section has the list, and the button that shows all of it. */
  constructor(section) {
    this.section = section;
    this.list = section.querySelector('ul');
    this.more = section.querySelector('button');
    this.all = [];
    this.items = new Map();
    this.isWhole = false;
    this.wanted = '';
    this.more.addEventListener('click', () => {
      const next = this.list.children[FIRST];
      this.isWhole = true;
      this.show();
      (next ?? this.list.children[FIRST])?.querySelector('a').focus();
    });
  }

  static key(name, begin) { return `${name}/${begin}`; }

  find(name, begin) { return this.all.find((own) => own.name === name && own.begin === begin) ?? null; }

  /** The link to a recording, where it is in the list. */
  link(name, begin) { return this.items.get(Recordings.key(name, begin))?.link ?? null; }

  async refresh() {
    const answer = await fetch(`vod${location.search}`);
    if (!answer.ok) throw new Error(`status ${answer.status}`);
    const { recordings } = await answer.json();
    this.all = recordings.sort((a, b) => (a.begin < b.begin ? 1 : -1));
    this.show();
  }

  /** Shows those whose name has this. */
  filter(wanted) {
    this.wanted = wanted;
    this.show();
  }

  show() {
    const shown = this.all.filter((own) => own.name.toLowerCase().includes(this.wanted));
    const some = this.isWhole ? shown : shown.slice(0, FIRST);
    const keys = new Set(some.map((own) => Recordings.key(own.name, own.begin)));
    for (const [key, { item }] of this.items) {
      if (keys.has(key)) continue;
      item.remove();
      this.items.delete(key);
    }
    some.forEach((own, place) => {
      const { item } = this.entry(own);
      // What is at its place stays there, with the keyboard's focus.
      if (this.list.children[place] !== item) this.list.insertBefore(item, this.list.children[place] ?? null);
    });
    this.section.hidden = shown.length === 0;
    this.more.hidden = some.length === shown.length;
    set(this.more, `Show all ${shown.length} recordings`);
  }

  entry(own) {
    const key = Recordings.key(own.name, own.begin);
    let entry = this.items.get(key);
    if (!entry) {
      entry = { item: make('li', ''), link: make('a', 'kept') };
      entry.link.href = `#vod/${own.name}/${own.begin}`;
      entry.facts = make('span', 'rate');
      entry.length = make('span', 'length');
      entry.length.setAttribute('aria-hidden', 'true');
      entry.spoken = make('span', 'unseen');
      entry.link.append(make('span', 'unseen', 'Recording '), make('span', 'name', own.name), ' ', make('span', 'when', began(own.begin)), ' ', entry.facts, ' ', entry.length, entry.spoken);
      entry.item.append(entry.link);
      this.items.set(key, entry);
    }
    const gaps = own.gaps ? `${own.gaps} ${own.gaps === 1 ? 'gap' : 'gaps'}` : '';
    set(entry.facts, [size(own.bytes), gaps].filter(Boolean).join(' · '));
    set(entry.length, clock(own.seconds));
    set(entry.spoken, spoken(own.seconds));
    return entry;
  }

  /** Marks the one that plays. */
  mark(name, begin) {
    for (const [key, { link }] of this.items) {
      if (begin && key === Recordings.key(name, begin)) link.setAttribute('aria-current', 'true');
      else link.removeAttribute('aria-current');
    }
  }
}
