// Views of the clients that match a pattern, and of one client: its state, diagnosis and operations.

import { act, api, Failure } from './api.js';
import { ago, at, button, bytes, check, confirm, count, field, make, meter, table, values } from './dom.js';

const asked = { client: '', user: '', address: '', connected: '' };
const order = { at: null, down: false };

const COLUMNS = [
  { name: 'Client', key: (one) => one.client_id, of: (one) => [make('a', { href: `#client/${encodeURIComponent(one.client_id)}` }, one.client_id || '(empty)'), make('span', { class: 'small' }, one.user ?? 'anonymous')] },
  { name: 'State', key: (one) => one.connected ? 0 : 1, of: (one) => [make('span', { class: one.connected ? 'good' : 'faint' }, one.connected ? 'connected' : 'away'), make('span', { class: 'small' }, ago(one.since_us))] },
  { name: 'Address', key: (one) => one.address, of: (one) => one.address },
  { name: 'Window', key: (one) => one.window / Math.max(1, one.window_size), of: (one) => [`${one.window} / ${one.window_size}`, meter(one.window, one.window_size, 'Window')] },
  { name: 'Queue', key: (one) => one.queue, of: (one) => [`${count(one.queue)} / ${count(one.queue_max)}`, meter(one.queue, one.queue_max, 'Queue')] },
  { name: 'Dropped', number: true, key: (one) => one.dropped, of: (one) => make('span', { class: one.dropped ? 'warn' : 'faint' }, count(one.dropped)) },
  { name: 'Limited by', key: limitedBy, of: (one) => make('span', { class: 'warn' }, limitedBy(one)) },
];

function limitedBy(one) {
  if (!one.connected) return one.queue ? 'away' : '';
  if (one.queue_max && one.queue >= one.queue_max) return 'queue full';
  return one.window_size && one.window >= one.window_size ? 'window full' : '';
}

export function clients(place, page) {
  let cursors = [''], entries = [];
  const list = make('div'), pages = make('div', { class: 'tools' });
  const form = make('form', { role: 'search', onsubmit: (event) => { event.preventDefault(); Object.assign(asked, values(form)); cursors = ['']; page.again(); } },
    field('Client, as press-*', { name: 'client', value: asked.client, maxlength: 256 }), field('User', { name: 'user', value: asked.user, maxlength: 256 }),
    field('Address or network', { name: 'address', value: asked.address, maxlength: 256 }),
    make('label', {}, 'State', make('select', { name: 'connected' }, [['', 'all'], ['true', 'connected'], ['false', 'away']].map(([value, text]) => make('option', { value, selected: asked.connected === value }, text)))),
    make('button', { class: 'main' }, 'Search'));
  place.append(make('h1', {}, 'Clients'), form, list, pages);
  const render = () => list.replaceChildren(table(COLUMNS, entries, 'No client meets these conditions.', { ...order, by: (which) => { order.down = order.at === which && !order.down; order.at = which; render(); } }));
  page.every(async () => {
    const found = await api('/sessions', { ...asked, cursor: cursors.at(-1), limit: 100 });
    entries = found.entries;
    if (!list.contains(document.activeElement)) render();
    pages.replaceChildren(cursors.length > 1 ? button('Back', () => { cursors.pop(); page.again(); }) : '', found.cursor ? button('Next hundred', () => { cursors.push(found.cursor); render(); document.activeElement.blur(); page.again(); }) : '');
  });
}

export function client(place, page, name) {
  const facts = make('div'), answer = make('div');
  let topic = '';
  const form = make('form', { onsubmit: (event) => { event.preventDefault(); topic = values(form).topic; why(); } },
    field('Topic, or empty', { name: 'topic', maxlength: 65535 }), make('button', { class: 'main' }, 'Why does it receive nothing?'));
  const acts = page.may('operator') ? make('div', { class: 'tools' },
    button('Disconnect…', () => kick(page, name), 'danger'), button('Ban…', () => banClient(page, name), 'danger'),
    page.may('admin') ? button('Remove session…', () => remove(page, name), 'danger') : '') : '';
  place.append(make('p', {}, make('a', { href: '#clients' }, '← All clients')), make('h1', {}, name || '(empty)'), acts, facts, make('h2', {}, 'Why'), form, answer);
  async function why() {
    try {
      const found = await api('/why', { client_id: name, topic });
      answer.replaceChildren(make('div', { class: 'card' }, make('p', {}, make('strong', {}, found.reason)), make('p', {}, found.remedy)));
    } catch (failure) { answer.replaceChildren(make('p', { class: 'bad' }, failure.message)); }
  }
  page.every(async () => {
    try { facts.replaceChildren(...details(await api('/session', { client_id: name }))); } catch (failure) {
      if (!(failure instanceof Failure) || failure.status !== 404) throw failure;
      facts.replaceChildren(make('div', { class: 'scroll empty' }, 'The broker has no session of this client.'));
    }
  });
}

function details(one) {
  const drops = Object.entries(one.drops);
  return [
    make('div', { class: 'cards' },
      make('div', { class: 'card' }, make('h3', {}, 'State'), make('strong', { class: one.connected ? 'good' : 'faint' }, one.connected ? 'connected' : 'away'), make('p', {}, `since ${at(one.since_us)}, MQTT ${{ 3: '3.1', 4: '3.1.1', 5: '5' }[one.version] || '–'}`), make('p', {}, `${one.address ?? ''} listener ${one.listener}`), make('p', {}, `user ${one.user ?? 'none (anonymous)'}`)),
      make('div', { class: 'card' }, make('h3', {}, 'In-flight window'), make('strong', {}, `${one.window} / ${one.window_size}`), meter(one.window, one.window_size, 'Window'), make('p', {}, 'messages sent and not acknowledged')),
      make('div', { class: 'card' }, make('h3', {}, 'Queue'), make('strong', {}, `${count(one.queue)} / ${count(one.queue_max)}`), meter(one.queue, one.queue_max, 'Queue'), make('p', {}, `${bytes(one.queue_bytes)} wait`)),
      make('div', { class: 'card' }, make('h3', {}, 'Dropped'), make('strong', { class: one.dropped ? 'warn' : null }, count(one.dropped)), drops.map(([reason, number]) => make('p', {}, `${reason.replaceAll('_', ' ')}: ${count(number)}`)))),
    make('h2', {}, `Subscriptions (${count(one.subscriptions)})`),
    table([{ name: 'Filter', of: (each) => each.filter }, { name: 'QoS', of: (each) => String(each.qos), number: true }, { name: 'Queue of its group', of: (each) => each.queue == null ? '' : `${count(each.queue)} / ${count(each.queue_max)}` }], one.filters, 'It has none.'),
  ];
}

async function done(page, work, said) {
  try { const found = await work(); await page.again(); page.say(said(found)); } catch (failure) { page.say(failure.message); }
}

async function kick(page, name) {
  const told = await confirm('Disconnect this client?', name, 'Disconnect', field('Reason, sent to the client', { name: 'why', maxlength: 200 }), check('Refuse it for ten minutes', { name: 'ban' }));
  if (told) done(page, () => act('/sessions/kick', { filter: { client_id: name }, why: told.why, ban_s: told.ban ? 600 : null }), (found) => `${found.count} disconnected`);
}

async function banClient(page, name) {
  const told = await confirm('Ban this client?', `${name}: it is refused from now on, and stays connected until it is disconnected.`, 'Ban', field('Seconds, 0 until the broker ends', { name: 'for_s', type: 'number', min: 0, value: 600 }), field('Reason', { name: 'why', maxlength: 200 }));
  if (told) done(page, () => act('/bans/make', { kind: 'client', value: name, for_s: Number(told.for_s), why: told.why }), () => 'banned');
}

async function remove(page, name) {
  const told = await confirm('Remove its session?', `${name}: its subscriptions and all its queued messages are deleted.`, 'Remove');
  if (told) done(page, () => act('/sessions/remove', { filter: { client_id: name, connected: null } }), (found) => `${found.count} removed; one that is connected must be disconnected first`);
}
