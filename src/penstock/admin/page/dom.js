// Builds elements, tables and small charts. Data is inserted as text only, never as HTML.

const SVG = 'http://www.w3.org/2000/svg';

export function make(name, attributes = {}, ...inside) { return filled(document.createElement(name), attributes, inside); }
export function draw(name, attributes = {}, ...inside) { return filled(document.createElementNS(SVG, name), attributes, inside); }

function filled(element, attributes, inside) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith('on')) element.addEventListener(name.slice(2), value);
    else if (value === true) element.setAttribute(name, '');
    else if (value !== false && value != null) element.setAttribute(name, value);
  }
  element.append(...inside.flat().filter((one) => one != null).map((one) => one instanceof Node ? one : shown(one)));
  return element;
}

// Make control characters and those that change the direction of text visible.
export function shown(text) {
  return String(text).replace(/[\u0000-\u001f\u007f-\u009f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g,
    (one) => '\\u' + one.codePointAt(0).toString(16).padStart(4, '0'));
}

export function card(title, value, text, ...drawing) {
  return make('div', { class: 'card' }, make('h3', {}, title), make('strong', {}, value), text ? make('p', {}, text) : null, ...drawing);
}

export function sparkline(values, title) {
  const width = 100, height = 34, most = Math.max(...values, 1e-9);
  const points = values.map((value, at) => `${(at * width / Math.max(1, values.length - 1)).toFixed(2)},${(height - 2 - (height - 4) * value / most).toFixed(2)}`);
  return draw('svg', { viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: 'none', role: 'img', 'aria-label': title },
    draw('polygon', { class: 'area', points: `0,${height} ${points.join(' ')} ${width},${height}` }),
    draw('polyline', { class: 'line', points: points.join(' ') }));
}

export function meter(part, whole, title) {
  const share = whole > 0 ? Math.min(1, part / whole) : 0;
  return draw('svg', { class: 'meter', viewBox: '0 0 100 8', preserveAspectRatio: 'none', role: 'img', 'aria-label': `${title}: ${part} of ${whole}` },
    draw('rect', { class: 'rest', width: 100, height: 8 }),
    draw('rect', { class: share >= 1 ? 'bar full' : 'bar', width: 100 * share, height: 8 }));
}

// columns: { name, of: (row) => content of the cell, key: (row) => sort key, number: aligned right }
export function table(columns, rows, empty, sorting) {
  if (!rows.length) return make('div', { class: 'scroll empty' }, empty);
  const head = columns.map((one, at) => make('th', { scope: 'col', 'aria-sort': sorting && sorting.at === at ? (sorting.down ? 'descending' : 'ascending') : null },
    one.key && sorting ? make('button', { type: 'button', onclick: () => sorting.by(at) }, one.name + (sorting.at === at ? (sorting.down ? ' ↓' : ' ↑') : '')) : one.name));
  const sorted = sorting && sorting.at != null ? [...rows].sort((a, b) => compare(columns[sorting.at].key(a), columns[sorting.at].key(b)) * (sorting.down ? -1 : 1)) : rows;
  return make('div', { class: 'scroll' }, make('table', {}, make('thead', {}, make('tr', {}, head)),
    make('tbody', {}, sorted.map((row) => make('tr', {}, columns.map((one) => make('td', { class: one.number ? 'number' : null }, one.of(row) ?? '')))))));
}

function compare(a, b) { return typeof a === 'number' && typeof b === 'number' ? a - b : String(a ?? '').localeCompare(String(b ?? '')); }

export function button(text, onclick, kind) { return make('button', { type: 'button', class: kind, onclick }, text); }

export function field(text, attributes) { return make('label', {}, text, make('input', { autocomplete: 'off', ...attributes })); }

export function check(text, attributes) { return make('label', { class: 'check' }, make('input', { type: 'checkbox', ...attributes }), text); }

// Run a search of a form, whose main button says so and waits until it has ended.
export async function search(form, work) {
  const main = form.querySelector('button.main'), label = main.textContent;
  if (main.disabled) return;
  main.disabled = true;
  main.textContent = 'Searching…';
  try { await work(); } finally { main.disabled = false; main.textContent = label; }
}

export function values(form) {
  return Object.fromEntries([...form.elements].filter((one) => one.name).map((one) => [one.name, one.type === 'checkbox' ? one.checked : one.value]));
}

// Show a dialog for confirmation; resolve to the values of its fields, or to null if it is cancelled.
export function confirm(title, text, word, ...fields) {
  const dialog = document.getElementById('dialog');
  return new Promise((resolve) => {
    let answer = null;
    const form = make('form', { onsubmit: (event) => { event.preventDefault(); answer = values(form); dialog.close(); } },
      make('h1', { id: 'question' }, title), make('p', {}, text), fields,
      make('div', { class: 'tools' }, button('Cancel', () => dialog.close()), make('button', { class: 'main' }, word)));
    dialog.setAttribute('aria-labelledby', 'question');
    dialog.replaceChildren(form);
    dialog.addEventListener('close', () => resolve(answer), { once: true });
    dialog.showModal();
  });
}

export const count = (number) => Math.round(number).toLocaleString('en');
export function rate(number) { return number >= 100 ? count(number) : number >= 10 ? number.toFixed(1) : number.toFixed(2); }
export function bytes(number) {
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  let at = 0;
  while (number >= 1024 && at < units.length - 1) { number /= 1024; at += 1; }
  return `${at ? number.toFixed(number < 10 ? 1 : 0) : Math.round(number)} ${units[at]}`;
}
export function span(seconds) {
  if (seconds == null) return '';
  if (seconds < 1) return `${(seconds * 1000).toFixed(seconds < 0.01 ? 1 : 0)} ms`;
  for (const [name, length] of [['d', 86400], ['h', 3600], ['min', 60]]) if (seconds >= 2 * length) return `${Math.round(seconds / length)} ${name}`;
  return `${Math.round(seconds)} s`;
}
export const ago = (us) => us ? `${span(Math.max(0, Date.now() / 1000 - us / 1e6))} ago` : '';
export const at = (us) => us ? new Date(us / 1000).toISOString().replace('T', ' ').slice(0, 19) + ' UTC' : '';
