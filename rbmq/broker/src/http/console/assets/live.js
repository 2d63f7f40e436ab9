// Requests to the broker, and pages that stay up to date: a stream of events, or, where there is no place for one, a request in five seconds.

const BASE = '/api/v1';

/** A request that was refused. */
export class Refused extends Error {
  constructor(status, text) {
    super(text);
    this.status = status;
  }
}

let csrf = null;

/** Keeps the text that changing requests need. */
export const know = (text) => { csrf = text; };

/** The answer to a request. */
export async function ask(path, { method = 'GET', body } = {}) {
  const headers = {};
  if (body !== undefined) headers['Content-Type'] = 'application/json';
  if (method !== 'GET' && csrf) headers['X-RBMQ-CSRF'] = csrf;
  let answer;
  try {
    answer = await fetch(BASE + path, {
      method, headers, credentials: 'same-origin', body: body === undefined ? undefined : JSON.stringify(body),
    });
  } catch {
    throw new Refused(0, 'the broker cannot be reached');
  }
  const value = await answer.json().catch(() => ({}));
  if (!answer.ok) throw new Refused(answer.status, value.error || `status ${answer.status}`);
  return value;
}

/** The path with the parameters that have a value. */
export function address(path, parameters = {}) {
  const query = new URLSearchParams();
  for (const [key, value] of Object.entries(parameters)) if (value !== '' && value != null) query.set(key, value);
  const text = query.toString();
  return text ? `${path}?${text}` : path;
}

const AGAIN = 5000;

/**
 * Shows what a path has, from now until the returned function is called. `on.value` gets each answer, `on.problem` a refusal, `on.state`
 * whether the page is up to date. A page that nobody sees asks for nothing.
 */
export function follow(path, on) {
  let source = null;
  let timer = null;
  let over = false;

  const stop = () => {
    source?.close();
    source = null;
    clearTimeout(timer);
  };
  const once = async () => {
    try {
      const value = await ask(path);
      if (over) return;
      on.value(value);
      on.state('slow');
    } catch (problem) {
      if (over) return;
      on.state('off');
      on.problem(problem);
      if ([401, 403, 404, 400].includes(problem.status)) return;
    }
    if (!over && !document.hidden) timer = setTimeout(once, AGAIN);
  };
  const start = () => {
    stop();
    if (over || document.hidden) return;
    source = new EventSource(`${BASE}/stream${path}`);
    source.onmessage = (event) => {
      on.state('live');
      on.value(JSON.parse(event.data));
    };
    source.addEventListener('problem', (event) => {
      const { status, error } = JSON.parse(event.data);
      stop();
      on.state('off');
      on.problem(new Refused(status, error));
      if (status === 503) timer = setTimeout(start, AGAIN);
    });
    source.onerror = () => {
      if (source?.readyState === EventSource.CLOSED) {
        // The stream was refused: the same without one says why, or has the answer.
        stop();
        once();
      } else {
        on.state('wait');
      }
    };
  };
  const seen = () => (document.hidden ? stop() : start());
  document.addEventListener('visibilitychange', seen);
  start();
  return () => {
    over = true;
    stop();
    document.removeEventListener('visibilitychange', seen);
  };
}
