// Keeps the page new. All of it is made by the server: this asks for it again when something has changed, or when the reader goes elsewhere in
// it, and puts in the parts that differ. Nothing here makes HTML of text.
'use strict';

const pause = 400; // between two times that the page is asked for, in milliseconds
const live = document.getElementById('live');
let revision = document.body.dataset.revision;
const shown = new Map(); // by id of a part: how the server made it
for (const part of document.querySelectorAll('[data-live]')) shown.set(part.id, part.outerHTML);

// --- times

function ago(date, now) {
  const s = Math.round((now - date) / 1000);
  const [n, unit] = Math.abs(s) < 120 ? [s, 's'] : Math.abs(s) < 7200 ? [s / 60, 'min'] : Math.abs(s) < 172800 ? [s / 3600, 'h'] : [s / 86400, 'd'];
  return n < -1 ? `in ${Math.trunc(-n)} ${unit}` : `${Math.max(0, Math.trunc(n))} ${unit} ago`;
}

function tellTimes() {
  const now = Date.now();
  for (const t of document.querySelectorAll('time')) {
    const text = ago(Date.parse(t.dateTime), now);
    if (t.textContent !== text) t.textContent = text;
    if (!t.title) t.title = t.dateTime;
  }
}
setInterval(tellTimes, 5000);

// --- what is new

let asking = false, again = false;

async function refresh() {
  if (asking) { again = true; return; }
  asking = true;
  try {
    do {
      again = false;
      const asked = location.href;
      const answer = await fetch(asked, { cache: 'no-store', credentials: 'same-origin' });
      if (!answer.ok) throw new Error(`the server says ${answer.status}`);
      const next = new DOMParser().parseFromString(await answer.text(), 'text/html');
      if (asked !== location.href) { again = true; continue; }
      put(next);
      await new Promise((done) => setTimeout(done, pause));
    } while (again);
  } catch {
    mark(false);
    setTimeout(refresh, 2000);
  } finally {
    asking = false;
  }
}

function put(next) {
  revision = next.body.dataset.revision;
  document.title = next.title;
  const focused = document.activeElement;
  const at = focused && { id: focused.id, href: focused.getAttribute('href'), text: focused.textContent, part: focused.closest('[data-live]')?.id };
  for (const part of next.querySelectorAll('[data-live]')) {
    const html = part.outerHTML, old = document.getElementById(part.id);
    if (!old || shown.get(part.id) === html) continue;
    shown.set(part.id, html);
    for (const was of old.querySelectorAll('details[data-key]')) {
      const is = part.querySelector(`details[data-key="${CSS.escape(was.dataset.key)}"]`);
      if (is) is.open = was.open;
    }
    old.replaceWith(document.adoptNode(part));
    if (at && at.part === part.id) {
      const same = (at.id && document.getElementById(at.id)) ||
        [...part.querySelectorAll('a, button, summary')].find((e) => e.getAttribute('href') === at.href && e.textContent === at.text);
      if (same) same.focus({ preventScroll: true });
    }
  }
  tellTimes();
}

// --- who tells what is new

function mark(on) {
  const text = on ? 'Live' : 'Not live: tributary does not answer. Trying again.';
  if (live.textContent !== text) live.textContent = text;
  live.className = on ? 'live on' : 'live off';
  document.body.classList.toggle('stopped', !on);
}

let silent = 0;
function heard() {
  clearTimeout(silent);
  silent = setTimeout(() => { events.close(); listen(); mark(false); }, 25000);
}

let events, retry = 0;
function listen() {
  clearTimeout(retry);
  events = new EventSource('/debug/page/events');
  events.addEventListener('state', (e) => {
    heard();
    mark(true);
    if (JSON.parse(e.data).revision !== revision) refresh();
  });
  events.onerror = () => {
    mark(false);
    if (events.readyState === EventSource.CLOSED) { // refused: too many live pages
      clearTimeout(retry);
      retry = setTimeout(async () => {
        await refresh().then(() => mark(true), () => {});
        listen();
      }, 5000);
    }
  };
}
addEventListener('pagehide', () => events.close());
addEventListener('pageshow', (e) => { if (e.persisted) listen(); });

// --- where the reader goes

const filter = document.getElementById('filter');

function go(href, focus) {
  const to = new URL(href, location.href);
  history.pushState(null, '', to);
  follow(to);
  refresh().then(() => {
    const target = document.getElementById(to.hash.slice(1));
    if (!target) return;
    target.scrollIntoView({ block: 'nearest' });
    if (focus) (target.querySelector('h3[tabindex], h2') ?? target).focus({ preventScroll: true });
  });
}

// follow has the form show what is asked for.
function follow(to) {
  filter.elements.show.value = to.searchParams.get('show') ?? 'all';
  if (document.activeElement !== filter.elements.q) filter.elements.q.value = to.searchParams.get('q') ?? '';
  filter.elements.kind.value = to.searchParams.get('kind') ?? '';
}

document.addEventListener('click', (e) => {
  const a = e.target.closest('a[data-nav]');
  if (!a || e.defaultPrevented || e.button !== 0 || e.metaKey || e.ctrlKey || e.shiftKey || e.altKey) return;
  e.preventDefault();
  go(a.href, true);
});
addEventListener('popstate', () => { follow(new URL(location.href)); refresh(); });

function find() {
  const to = new URL(location.href);
  for (const name of ['page', 'object']) to.searchParams.delete(name);
  for (const name of ['q', 'kind', 'show']) {
    const value = filter.elements[name].value.trim();
    if (value && value !== 'all') to.searchParams.set(name, value); else to.searchParams.delete(name);
  }
  to.hash = 'objects';
  history.replaceState(null, '', to);
  refresh();
}
let typing = 0;
filter.addEventListener('input', () => { clearTimeout(typing); typing = setTimeout(find, 250); });
filter.addEventListener('submit', (e) => { e.preventDefault(); clearTimeout(typing); find(); });

// --- what is held

const ask = document.getElementById('ask');

document.addEventListener('submit', (e) => {
  const form = e.target.closest('form[data-release]');
  if (!form) return;
  e.preventDefault();
  document.getElementById('ask-what').textContent = form.dataset.release;
  ask.returnValue = 'no';
  ask.onclose = () => { if (ask.returnValue === 'yes') release(form); };
  ask.showModal();
});

async function release(form) {
  let text;
  try {
    const answer = await fetch(form.action, { method: 'POST', credentials: 'same-origin' });
    text = (await answer.text()).trim();
    if (!answer.ok) text += ' The command beside this does it, too.';
  } catch {
    text = 'There was no answer: whether it is released is not known.';
  }
  const said = document.createElement('p');
  said.className = 'answer';
  said.setAttribute('role', 'status');
  said.textContent = text;
  form.append(said);
  refresh();
}

tellTimes();
listen();
