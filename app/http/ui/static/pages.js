// Makes pages follow what happens. Without it everything works too: pages reload by themselves every half minute.
"use strict";

const UNITS = [["d", 86400], ["h", 3600], ["min", 60], ["s", 1]];
const AGAIN_MS = 10000;
const pulse = document.getElementById("pulse");
let source = null;
let fetching = false;
let missed = false;

function ago(seconds) {
  const distance = Math.abs(seconds);
  if (distance < 2) return "now";
  const [unit, size] = UNITS.find(([, each]) => distance >= each) || UNITS[3];
  const words = `${Math.floor(distance / size)} ${unit}`;
  return seconds > 0 ? `${words} ago` : `in ${words}`;
}

function tick() {
  for (const time of document.querySelectorAll("time[title]")) {
    time.textContent = ago((Date.now() - Date.parse(time.dateTime)) / 1000);
  }
}

function say(live) {
  pulse.hidden = false;
  pulse.classList.toggle("live", live);
  pulse.textContent = live ? "Live" : "Not live";
}

function replace(fresh) {
  const before = document.getElementById("live");
  const after = fresh.getElementById("live");
  if (!before || !after) return location.reload();
  const focused = before.contains(document.activeElement) ? document.activeElement.id : "";
  for (const details of before.querySelectorAll("details[id]")) {
    const same = after.querySelector(`#${CSS.escape(details.id)}`);
    if (same) same.open = details.open;
  }
  before.replaceWith(document.adoptNode(after));
  document.body.dataset.seen = fresh.body.dataset.seen;
  document.title = fresh.title;
  if (focused) document.getElementById(focused)?.focus({ preventScroll: true });
  tick();
}

function isReading() {
  const selection = document.getSelection();
  return !selection.isCollapsed && document.getElementById("live").contains(selection.anchorNode);
}

async function refresh() {
  if (fetching) {
    missed = true;
    return;
  }
  fetching = true;
  try {
    const response = await fetch(location.href, { cache: "no-store" });
    if (response.redirected || response.status === 404) return location.reload();
    if (response.ok) {
      const fresh = new DOMParser().parseFromString(await response.text(), "text/html");
      while (isReading()) await new Promise((resolve) => setTimeout(resolve, 1000));
      replace(fresh);
    }
  } catch {
    say(false);
  } finally {
    fetching = false;
    if (missed) {
      missed = false;
      refresh();
    }
  }
}

function listen() {
  const { events, seen } = document.body.dataset;
  const page = location.pathname + location.search;
  source = new EventSource(`${events}?${new URLSearchParams({ page, seen })}`);
  source.onopen = () => say(true);
  source.addEventListener("changed", refresh);
  source.onerror = () => {
    say(false);
    if (source && source.readyState === EventSource.CLOSED) setTimeout(again, AGAIN_MS);
  };
}

// A hidden page listens to nothing: browsers keep few connections to one place, for all tabs together.
function again() {
  source?.close();
  source = null;
  if (document.visibilityState !== "visible") return;
  refresh().then(listen);
}

if (new URLSearchParams(location.search).has("said")) {
  const address = new URL(location.href);
  address.searchParams.delete("said");
  history.replaceState(null, "", address);
}

if (document.body.dataset.events) {
  listen();
  setInterval(tick, 10000);
  document.addEventListener("visibilitychange", again);
}

for (const form of document.querySelectorAll("form[method=post]")) {
  form.addEventListener("submit", () => {
    // Later, so that the button that was pressed is still sent.
    setTimeout(() => form.querySelectorAll("button").forEach((button) => { button.disabled = true; }));
  });
}

window.addEventListener("pageshow", () => {
  for (const button of document.querySelectorAll("button:disabled")) button.disabled = false;
});
