// Sends requests to the API one at a time, with the session's cookie, and its CSRF token for a POST.

let csrfToken = '';
let queue = Promise.resolve();

export class Failure extends Error {
  constructor(status, message) { super(message); this.status = status; }
}

export function useCsrfToken(token) { csrfToken = token || ''; }

export function get(path, parameters = {}) {
  const given = Object.entries(parameters).filter(([, value]) => value !== '' && value != null);
  const query = new URLSearchParams(given).toString();
  return enqueue(() => request('GET', query ? `${path}?${query}` : path));
}

export function post(path, body) { return enqueue(() => request('POST', path, body)); }

export const api = (path, parameters) => get('/api/v1' + path, parameters);
export const act = (path, body) => post('/api/v1' + path, body);

function enqueue(work) {
  const done = queue.then(work, work);
  queue = done.catch(() => {});
  return done;
}

async function request(method, path, body) {
  const headers = {};
  if (method === 'POST') { headers['Content-Type'] = 'application/json'; headers['X-CSRF-Token'] = csrfToken; }
  let answer;
  try {
    answer = await fetch(path, { method, headers, body: body === undefined ? undefined : JSON.stringify(body),
      credentials: 'same-origin', cache: 'no-store', signal: AbortSignal.timeout(40000) });
  } catch { throw new Failure(0, 'the admin process does not answer'); }
  if (answer.status === 204) return null;
  let found;
  try { found = await answer.json(); } catch { throw new Failure(answer.status, `HTTP ${answer.status}`); }
  if (!answer.ok && !('checks' in found)) throw new Failure(answer.status, found.error || `HTTP ${answer.status}`);
  return found;
}
