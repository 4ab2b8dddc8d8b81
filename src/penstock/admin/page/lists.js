// Views of retained messages, bans, tables and readers, events, and the control of the broker.

import { act, api, Failure } from './api.js';
import { ago, at, button, bytes, card, check, confirm, count, field, make, search, shown, span, table, values } from './dom.js';

const SHOWN_BYTES_MAX = 65536;

async function done(page, work, said) {
  try { const found = await work(); await page.again(); page.say(said(found)); } catch (failure) { page.say(failure.message); }
}

export function retained(place, page) {
  let filter = '#', cursor = '', entries = [];
  const list = make('div'), one = make('div'), more = make('div', { class: 'tools' });
  const form = make('form', { role: 'search', onsubmit: (event) => { event.preventDefault(); filter = values(form).topic_filter; load(true); } },
    field('Topic filter', { name: 'topic_filter', value: filter, maxlength: 65535, required: true }), make('button', { class: 'main' }, 'List'),
    page.may('admin') ? button('Clear all that match…', clear, 'danger') : '');
  place.append(make('h1', {}, 'Retained messages'), form, one, list, more);
  const load = (anew) => search(form, () => find(anew));
  async function find(anew) {
    try {
      const found = await api('/retained', { topic_filter: filter, cursor: anew ? '' : cursor, limit: 100 });
      entries = anew ? found.entries : entries.concat(found.entries);
      cursor = found.cursor;
      page.say('');
    } catch (failure) { page.say(failure.message); return; }
    list.replaceChildren(table([
      { name: 'Topic', of: (each) => page.may('operator') ? button(each.topic, () => show(each.topic)) : each.topic },
      { name: 'Size', number: true, of: (each) => bytes(each.bytes) }, { name: 'QoS', number: true, of: (each) => String(each.qos) },
      { name: 'Published by', of: (each) => each.client_id }, { name: 'Received', of: (each) => ago(each.received_at_us) }], entries, 'No retained message matches.'));
    more.replaceChildren(cursor ? button('More', () => load(false)) : '');
  }
  async function show(topic) {
    try {
      const found = await api('/retained/message', { topic });
      one.replaceChildren(make('h2', {}, topic), make('pre', {}, payload(found.payload_base64)), make('p', { class: 'tools' }, button('Close', () => one.replaceChildren())));
      one.scrollIntoView({ block: 'nearest' });
    } catch (failure) { page.say(failure.message); }
  }
  async function clear() {
    filter = values(form).topic_filter;
    let number;
    try { number = (await act('/retained/clear', { topic_filter: filter, only_count: true })).count; } catch (failure) { page.say(failure.message); return; }
    const told = await confirm('Clear retained messages?', `${count(number)} messages that match ${filter} are gone for good.`, 'Clear');
    if (told) { await done(page, () => act('/retained/clear', { topic_filter: filter }), (found) => `${count(found.count)} cleared`); load(true); }
  }
  load(true);
}

// Return a payload as text with invisible characters escaped, or as hexadecimal digits if it is not UTF-8.
function payload(base64) {
  const whole = Uint8Array.from(atob(base64), (one) => one.charCodeAt(0)), part = whole.subarray(0, SHOWN_BYTES_MAX);
  const rest = whole.length > part.length ? `\n… and ${count(whole.length - part.length)} bytes more` : '';
  try { return new TextDecoder('utf-8', { fatal: true }).decode(part, { stream: true }).split('\n').map(shown).join('\n') + rest; } catch {
    const lines = [];
    for (let start = 0; start < part.length; start += 16) {
      const line = [...part.subarray(start, start + 16)];
      lines.push(`${start.toString(16).padStart(6, '0')}  ${line.map((one) => one.toString(16).padStart(2, '0')).join(' ').padEnd(48)} ${line.map((one) => one > 31 && one < 127 ? String.fromCharCode(one) : '.').join('')}`);
    }
    return lines.join('\n') + rest;
  }
}

export function bans(place, page) {
  const list = make('div');
  place.append(make('h1', {}, 'Bans'), page.may('operator') ? make('div', { class: 'tools' }, button('Ban…', ban, 'danger')) : '', list);
  page.every(async () => {
    const found = await api('/bans', { limit: 500 });
    if (list.contains(document.activeElement)) return;
    list.replaceChildren(table([{ name: 'What', of: (one) => one.kind }, { name: 'Which', of: (one) => one.value },
      { name: 'Left', of: (one) => one.left_s == null ? 'until the broker ends' : span(one.left_s) }, { name: 'Reason', of: (one) => one.reason },
      { name: '', of: (one) => page.may('operator') ? button('Lift…', () => lift(one)) : '' }], found.entries, 'Nobody is banned.'));
  });
  async function ban() {
    const told = await confirm('Ban', 'The client, user or address is refused at its next connection.', 'Ban',
      make('label', {}, 'What', make('select', { name: 'kind' }, ['client', 'user', 'address'].map((one) => make('option', {}, one)))),
      field('Which', { name: 'value', required: true }), field('Seconds, 0 until the broker ends', { name: 'for_s', type: 'number', min: 0, value: 3600 }), field('Reason', { name: 'why', maxlength: 200 }));
    if (told) done(page, () => act('/bans/make', { ...told, for_s: Number(told.for_s) }), (value) => `${value} is banned`);
  }
  async function lift(one) {
    if (await confirm('Lift this ban?', `${one.kind} ${one.value}`, 'Lift')) { document.activeElement.blur(); done(page, () => act('/bans/lift', { kind: one.kind, value: one.value }), () => 'lifted'); }
  }
}

export function flows(place, page) {
  const tables = make('div'), readers = make('div');
  place.append(make('h1', {}, 'Tables and readers'), make('h2', {}, 'Tables'), tables, make('h2', {}, 'Registered readers'), readers);
  const lag = [{ name: 'Offset', number: true, of: (one) => count(one.offset) }, { name: 'Messages behind', number: true, of: (one) => count(one.lag_messages) },
    { name: 'Time behind', number: true, of: (one) => one.lag_s == null ? 'it has left the log' : span(one.lag_s) }];
  const fill = async (where, path, columns, empty) => {
    try { where.replaceChildren(table(columns, await api(path), empty)); } catch (failure) {
      if (!(failure instanceof Failure) || failure.status !== 409) throw failure;
      where.replaceChildren(make('div', { class: 'scroll empty' }, 'This broker has no stream service.'));
    }
  };
  page.every(async () => {
    await fill(tables, '/tables', [{ name: 'Table', of: (one) => one.table }, { name: 'Stream', of: (one) => one.stream }, ...lag, { name: 'Last report', of: (one) => ago(one.landed_at_us) }], 'No table reports.');
    await fill(readers, '/readers', [{ name: 'Reader', of: (one) => [one.group, make('span', { class: 'small' }, one.about)] }, { name: 'Stream', of: (one) => one.stream }, ...lag,
      { name: 'Lease', of: (one) => one.lease_left_s ? `${span(one.lease_left_s)} left` : make('span', { class: 'warn' }, 'ended') }, { name: 'Lost', number: true, of: (one) => count(one.lost) }], 'No reader is registered.');
  });
}

const APART = new Set(['kind', 'at', 'client', 'n', 'by', 'act']);
export function events(place, page) {
  const asked = { kind: 'administered,banned', client_id: '', hours: '24' };
  let entries = [], cursor = '';
  const list = make('div'), more = make('div', { class: 'tools' });
  const form = make('form', { role: 'search', onsubmit: (event) => { event.preventDefault(); Object.assign(asked, values(form)); load(true); } },
    make('label', {}, 'What', make('select', { name: 'kind' }, [['administered,banned', 'what operators did'], ['connected,disconnected,refused', 'who came and left'], ['dropped,expired', 'what was dropped'], ['', 'everything']].map(([value, text]) => make('option', { value }, text)))),
    field('Client, as press-*', { name: 'client_id', maxlength: 256 }), field('Hours back', { name: 'hours', type: 'number', min: 0.1, step: 'any', value: asked.hours }), make('button', { class: 'main' }, 'List'));
  place.append(make('h1', {}, 'Events'), form, list, more);
  const load = (anew) => search(form, () => find(anew));
  async function find(anew) {
    try {
      const { kind, client_id: client, hours } = asked;
      const found = await api('/events', { kind, client_id: client, since: (Date.now() / 1000 - Number(hours) * 3600).toFixed(0), cursor: anew ? '' : cursor, limit: 100 });
      entries = anew ? found.entries : entries.concat(found.entries);
      cursor = found.cursor;
      page.say('');
    } catch (failure) {
      if (failure.status !== 409) { page.say(failure.message); return; }
      list.replaceChildren(make('div', { class: 'scroll empty' }, failure.message));
      return;
    }
    list.replaceChildren(table([{ name: 'When', of: (one) => at(one.at) }, { name: 'What', of: (one) => (one.act || one.kind).replaceAll('_', ' ') },
      { name: 'Who', of: (one) => one.by || (one.kind === 'administered' ? 'at the control socket' : '') }, { name: 'Client', of: (one) => one.client },
      { name: 'Details', of: (one) => Object.entries(one).filter(([name, value]) => !APART.has(name) && value !== '' && value != null).map(([name, value]) => `${name.replaceAll('_', ' ')} ${typeof value === 'object' ? JSON.stringify(value) : value}`).join(', ') }], entries, 'No event of that kind.'));
    more.replaceChildren(cursor ? button('Older', () => load(false)) : '');
  }
  load(true);
}

export function control(place, page) {
  const facts = make('div', { class: 'cards' }), answer = make('div');
  const acts = page.may('admin') ? make('div', { class: 'tools' }, button('Drain the broker…', begin, 'danger'), button('End the drain…', end), button('Reload settings…', reload)) : make('p', { class: 'faint' }, 'Draining the broker and reloading its settings need the role admin.');
  place.append(make('h1', {}, 'Control'), acts, facts, answer);
  page.every(async () => {
    const found = await api('/drain');
    facts.replaceChildren(card('Drain', found.draining ? 'under way' : 'no', found.draining ? `${count(found.sent_away)} disconnected, ${count(found.refused)} refused` : 'clients are accepted'), card('Connections', count(found.left)));
  });
  async function begin() {
    const told = await confirm('Drain the broker?', 'The broker accepts no new clients, and disconnects the present ones.', 'Drain', field('Server reference for the clients', { name: 'server_reference', maxlength: 1000 }),
      field('Clients a second', { name: 'per_s', type: 'number', min: 0.1, step: 'any', value: 100 }), check('Server moved for good', { name: 'moved' }));
    if (told) done(page, () => act('/drain/begin', { ...told, per_s: Number(told.per_s) }), () => 'the broker is draining');
  }
  async function end() {
    if (await confirm('End the drain?', 'The broker accepts clients again.', 'End the drain')) done(page, () => act('/drain/end', {}), () => 'clients are accepted');
  }
  async function reload() {
    if (!await confirm('Reload the settings?', 'The broker reads all settings and files again, and applies all of them or none.', 'Reload')) return;
    await done(page, async () => {
      const found = await act('/reload', {});
      const line = (one) => make('p', {}, `${one.setting}: ${one.old} → ${one.new}`);
      answer.replaceChildren(make('h2', {}, 'Changed'), ...found.changed.map(line), make('h2', {}, 'Waiting for a restart'), ...found.waiting.map(line), make('p', { class: 'faint' }, `Read again: ${found.read.join(', ') || 'no files'}`), ...found.warnings.map((one) => make('p', { class: 'bad' }, one)));
      return found;
    }, (found) => `${found.changed.length} settings changed, ${found.waiting.length} wait for a restart`);
  }
}
