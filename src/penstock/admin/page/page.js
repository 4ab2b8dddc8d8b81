// Login and logout, the choice of the view, and its periodic refresh.

import { Failure, get, post, useCsrfToken } from './api.js';
import { button, field, make, values } from './dom.js';
import { overview } from './overview.js';
import { clients, client } from './clients.js';
import { bans, control, events, flows, retained } from './lists.js';

const VIEWS = { overview: ['Overview', overview], clients: ['Clients', clients], client: [null, client], retained: ['Retained', retained],
  bans: ['Bans', bans], flows: ['Tables and readers', flows], events: ['Events', events], control: ['Control', control] };
const ROLES = ['viewer', 'operator', 'admin'];
const EVERY_MS = 3000, EVERY_MS_MAX = 30000;

const main = document.getElementById('view'), state = document.getElementById('state');
let user = null, timer = 0, shownView = 0, pause = EVERY_MS, refresh = null;

export const may = (role) => ROLES.indexOf(user.role) >= ROLES.indexOf(role);
const page = { may: (role) => may(role), say, again: () => poll(), every: (work) => { refresh = work; } };

function say(text) { state.textContent = text; }

async function begin() {
  try { took(await get('/page/session')); } catch (failure) { say(failure.message); timer = setTimeout(begin, EVERY_MS); }
}

function took(found) {
  user = found.user ? found : null;
  useCsrfToken(found.csrf_token);
  const who = document.getElementById('who'), views = document.getElementById('views');
  if (!user) { who.replaceChildren(); views.replaceChildren(); return login(found.logins !== false); }
  who.replaceChildren(make('span', {}, `${user.user} (${user.role})`), button('Log out', logout));
  show();
}

function login(possible) {
  clearTimeout(timer);
  refresh = null;
  const why = make('p', { class: 'bad', role: 'alert' });
  const form = make('form', { onsubmit: async (event) => {
    event.preventDefault();
    why.textContent = '';
    const submit = form.querySelector('button');
    submit.disabled = true;
    try { took(await post('/page/login', values(form))); say(''); } catch (failure) { why.textContent = sentence(failure.message); submit.disabled = false; form.password.select(); }
  } }, field('User', { name: 'user', autocomplete: 'username', autofocus: true }), field('Password, or a token without a user', { name: 'password', type: 'password', autocomplete: 'current-password', required: true }),
  make('button', { class: 'main' }, 'Log in'), why);
  main.replaceChildren(make('div', { class: 'login card' }, make('h1', {}, 'Log in'),
    possible ? form : make('p', {}, 'Nobody may log in here yet: set admin.users, or admin.token_file, and reload the broker.')));
  main.querySelector('input')?.focus();
}

const sentence = (text) => text.charAt(0).toUpperCase() + text.slice(1) + '.';

async function logout() {
  try { await post('/page/logout'); } catch { /* the session expires */ }
  took({ user: null });
}

function show() {
  if (!user) return;
  const [name, ...rest] = location.hash.slice(1).split('/');
  const chosen = Object.hasOwn(VIEWS, name) ? name : 'overview';
  const current = chosen === 'client' ? 'clients' : chosen;
  document.getElementById('views').replaceChildren(...Object.entries(VIEWS).filter(([, [title]]) => title).map(([key, [title]]) =>
    make('a', { href: `#${key}`, 'aria-current': key === current ? 'page' : null }, title)));
  document.title = `${VIEWS[current][0]} · Penstock`;
  shownView += 1;
  refresh = null;
  const place = make('div');
  main.replaceChildren(place);
  let argument = '';
  try { argument = decodeURIComponent(rest.join('/')); } catch { /* not a valid name */ }
  VIEWS[chosen][1](place, page, argument);
  main.focus({ preventScroll: true });
  poll();
}

async function poll() {
  clearTimeout(timer);
  const view = shownView, work = refresh;
  if (!work || !user) return;
  if (document.hidden) return;
  try {
    await work();
    pause = EVERY_MS;
    if (view === shownView) say('');
  } catch (failure) {
    if (!(failure instanceof Failure)) console.error(failure);
    if (failure.status === 401) return took({ user: null });
    pause = Math.min(pause * 2, EVERY_MS_MAX);
    if (view === shownView) say(sentence(failure.message || String(failure)) + ` Asking again in ${Math.round(pause / 1000)} s.`);
  }
  if (view === shownView) { clearTimeout(timer); timer = setTimeout(poll, pause); }
}

addEventListener('hashchange', show);
document.addEventListener('visibilitychange', () => { if (!document.hidden) poll(); });
begin();
