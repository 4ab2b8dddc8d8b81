// View of health, rates, latencies and memory, with their course over the last minutes.

import { api, get } from './api.js';
import { bytes, card, count, make, meter, rate, span, sparkline } from './dom.js';

const POINTS_MAX = 100;
const history = new Map();
let before = null;

export function overview(place, page) {
  const verdict = make('div'), figures = make('div');
  place.append(verdict, figures);
  page.every(async () => {
    let health;
    try {
      health = await get('/readyz');
    } catch (failure) {  // what was true before may not be true now
      verdict.replaceChildren(make('h1', {}, make('span', { class: 'bad' }, '▲ No answer')));
      throw failure;
    }
    verdict.replaceChildren(...judged(health.checks));
    const now = await api('/metrics');  // fails while the broker hangs
    figures.replaceChildren(...shown(now));
    before = { now, at: performance.now() };
  });
}

const judged = (checks) => [
  make('h1', {}, checks.every((one) => one.passes) ? make('span', { class: 'good' }, '● Ready for clients') : make('span', { class: 'bad' }, '▲ Not ready')),
  make('div', { class: 'cards' }, checks.map((one) => make('div', { class: 'card' }, make('h3', {}, one.check),
    make('strong', { class: one.passes ? 'good' : 'bad' }, one.passes ? 'passes' : 'fails'), make('p', {}, one.why || '')))),
];

const sum = (metrics, name) => (metrics.samples[name] || []).reduce((all, [, value]) => all + value, 0);

function keep(name, value) {
  const line = history.get(name) || [];
  line.push(value);
  if (line.length > POINTS_MAX) line.shift();
  history.set(name, line);
  return line;
}

function shown(now) {
  const seconds = before ? (performance.now() - before.at) / 1000 : 0;
  const each = (name) => seconds > 0.2 ? Math.max(0, sum(now, name) - sum(before.now, name)) / seconds : 0;
  const moving = (title, name, unit, format = rate) => {
    const value = each(name);
    return card(title, `${format(value)}${unit}`, null, sparkline(keep(name, value), title));
  };
  const slow = (title, name, text) => {
    const value = quantile(now, name, 0.99);
    return card(title, value == null ? '–' : span(value), text, sparkline(keep(name, value || 0), title));
  };
  const disk = sum(now, 'disk_free_bytes'), size = sum(now, 'disk_size_bytes');
  return [
    make('h2', {}, 'Traffic'),
    make('div', { class: 'cards' },
      card('Clients connected', count(sum(now, 'clients_connected')), `${count(sum(now, 'sessions'))} sessions, ${count(sum(now, 'subscriptions'))} subscriptions`, sparkline(keep('clients', sum(now, 'clients_connected')), 'Clients connected')),
      moving('Messages received', 'messages_received', ' /s'), moving('Messages sent', 'messages_sent', ' /s'),
      moving('Messages dropped', 'messages_dropped', ' /s'), moving('Bytes received', 'received_bytes', '/s', bytes), moving('Bytes sent', 'sent_bytes', '/s', bytes)),
    make('h2', {}, 'Latency'),
    make('div', { class: 'cards' },
      slow('Commit, 99 % are below', 'commit_duration_seconds', 'what an acknowledgement waits for'),
      slow('Synced write, 99 % are below', 'store_write_duration_seconds', 'the disk'),
      slow('Lag of the event loop, 99 % are below', 'loop_lag_seconds', 'how late a timer runs')),
    make('h2', {}, 'Memory and disk'),
    make('div', { class: 'cards' }, budgets(now), card('Disk', `${bytes(disk)} free`, `of ${bytes(size)}`, meter(size - disk, size, 'Disk')),
      card('Log', bytes(sum(now, 'log_bytes')), `offsets ${count(sum(now, 'log_earliest_offset'))} to ${count(sum(now, 'log_end_offset'))}, ${count(sum(now, 'log_forks'))} forks, ${count(sum(now, 'log_damaged_blocks'))} damaged blocks`),
      card('Store', sum(now, 'store_works') ? 'works' : 'cannot write', `${count(sum(now, 'store_outages'))} outages, commit under way ${span(sum(now, 'commit_waits_seconds'))}`),
      ...certificates(now),
      ...children(now),
      card('Up', span(sum(now, 'uptime_seconds')), `${count(sum(now, 'retained_messages'))} retained messages, ${count(sum(now, 'bans'))} bans`)),
    make('h2', {}, 'Clients at a limit'),
    make('div', { class: 'cards' }, (now.samples.clients_at_limit || []).map(([[limit], value]) =>
      make('div', { class: 'card' }, make('h3', {}, limit.replaceAll('_', ' ')), make('strong', { class: value ? 'warn' : null }, count(value))))),
  ];
}

function children(now) {
  const valueOf = (name, process) => (now.samples[name] || []).find(([[one]]) => one === process)?.[1] || 0;
  return (now.samples.child_restarts || []).map(([[process], restarts]) => {
    const silent = valueOf('child_silent_seconds', process), suspect = silent >= 10;
    return make('div', { class: 'card' }, make('h3', {}, process), make('strong', { class: suspect ? 'bad' : null }, suspect ? `silent for ${span(silent)}` : 'runs'),
      make('p', {}, `${count(restarts)} restarts, ${count(valueOf('child_hangs', process))} because it hung`));
  });
}

function certificates(now) {
  const works = new Map((now.samples.certificate_works || []).map(([of, value]) => [String(of), value]));
  const all = (now.samples.certificate_expires_seconds || []).toSorted(
    ([one, earlier], [other, later]) => works.get(String(one)) - works.get(String(other)) || earlier - later);
  if (!all.length) return [];
  const [of, left] = all[0], broken = !works.get(String(of));
  const text = !broken ? `expires in ${span(left)}` : left < 0 ? 'expired' : 'not valid yet';
  return [make('div', { class: 'card' }, make('h3', {}, 'Certificates'),
    make('strong', { class: broken ? 'bad' : left < 30 * 86400 ? 'warn' : null }, text), make('p', {}, `${of[0]} ${of[1]} ${of[2]}`))];
}

function budgets(now) {
  const limits = new Map((now.samples.memory_limit_bytes || []).map(([[name], value]) => [name, value]));
  return (now.samples.memory_bytes || []).map(([[name], value]) => {
    const limit = limits.get(name) || 0;
    return card(name.replaceAll('_', ' '), bytes(value), limit ? `of ${bytes(limit)}` : 'no limit', limit ? meter(value, limit, name) : null);
  });
}

// Return the quantile `share` of the values since the last refresh, or of all values if there were none since.
function quantile(now, name, share) {
  const found = now.distributions[name];
  if (!found) return null;
  const [bounds, counts] = found;
  const earlier = before?.now.distributions[name]?.[1];
  let recent = earlier ? counts.map((value, at) => Math.max(0, value - earlier[at])) : counts;
  if (!recent.some((value) => value > 0)) recent = counts;
  const all = recent.reduce((a, b) => a + b, 0);
  if (!all) return null;
  let seen = 0;
  for (let at = 0; at < recent.length; at += 1) {
    seen += recent[at];
    if (seen >= all * share) return bounds[Math.min(at, bounds.length - 1)];
  }
  return bounds.at(-1);
}
