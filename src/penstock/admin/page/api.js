// Requests to the API: one at a time, with the session's cookie, and for acts its CSRF token.

let csrfToken = '';
let line = Promise.resolve();

export class Failure extends Error {
  constructor(status, message) { super(message); this.status = status; }
}

export function useCsrfToken(token) { csrfToken = token || ''; }

export function get(path, parameters = {}) {
  const given = Object.entries(parameters).filter(([, value]) => value !== '' && value != null);
  const query = new URLSearchParams(given).toString();
  return inTurn(() => request('GET', query ? `${path}?${query}` : path));
}

export function post(path, told) { return inTurn(() => request('POST', path, told)); }

export const api = (path, parameters) => get('/api/v1' + path, parameters);
export const act = (path, told) => post('/api/v1' + path, told);

function inTurn(work) {
  const done = line.then(work, work);
  line = done.catch(() => {});
  return done;
}

async function request(method, path, told) {
  const headers = {};
  if (method === 'POST') { headers['Content-Type'] = 'application/json'; headers['X-CSRF-Token'] = csrfToken; }
  let answer;
  try {
    answer = await fetch(path, { method, headers, body: told === undefined ? undefined : JSON.stringify(told),
      credentials: 'same-origin', cache: 'no-store', signal: AbortSignal.timeout(40000) });
  } catch { throw new Failure(0, 'the admin process does not answer'); }
  if (answer.status === 204) return null;
  let found;
  try { found = await answer.json(); } catch { throw new Failure(answer.status, `HTTP ${answer.status}`); }
  if (!answer.ok && !('checks' in found)) throw new Failure(answer.status, found.error || `HTTP ${answer.status}`);
  return found;
}
