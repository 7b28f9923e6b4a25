"use strict";
// Copies snippets, filters long lists and refreshes what changes. The page works without it. Everything is written as
// text: the server sends no HTML to it, and the policy of the page forbids to make any.

const POLL_MS = 3000;
const FILTER_FROM = 9;

const live = document.getElementById("live");

function element(name, className, text) {
  const made = document.createElement(name);
  if (className) made.className = className;
  if (text !== undefined) made.textContent = text;
  return made;
}

function addCopyButtons() {
  if (!navigator.clipboard) return;
  for (const block of document.querySelectorAll("pre.copy")) {
    const button = element("button", "", "Copy");
    button.type = "button";
    button.addEventListener("click", async () => {
      try {
        await navigator.clipboard.writeText(block.textContent);
        live.textContent = "Copied.";
      } catch {
        live.textContent = "The browser did not allow copying.";
      }
    });
    block.after(button);
  }
}

function addFilters() {
  for (const section of document.querySelectorAll("section.tools, section.resources, section.prompts")) {
    const items = [...section.querySelectorAll("details.item")];
    if (items.length < FILTER_FROM) continue;
    const label = element("label", "filter", "Filter ");
    const input = element("input");
    input.type = "search";
    label.append(input);
    items[0].before(label);
    input.addEventListener("input", () => {
      const wanted = input.value.trim().toLowerCase();
      let shown = 0;
      for (const item of items) {
        item.hidden = !item.querySelector("summary").textContent.toLowerCase().includes(wanted);
        shown += item.hidden ? 0 : 1;
      }
      live.textContent = `${shown} of ${items.length} shown.`;
    });
  }
}

function bytes(count) {
  if (count < 1000) return `${count} B`;
  if (count < 1e6) return `${(count / 1e3).toFixed(1)} kB`;
  return `${(count / 1e6).toFixed(1)} MB`;
}

function callRow(call) {
  const row = element("tr");
  const item = element("td");
  if (call.name === undefined) {
    item.append(`unlisted ${call.kind}`);
  } else {
    item.append(`${call.kind} `, element("code", "", call.name));
  }
  if (call.nested) item.append(" (by a tool)");
  const outcome = element("td");
  outcome.append(element("span", `label ${call.class}`, call.outcome));
  row.append(
    element("td", "", call.time),
    item,
    outcome,
    element("td", "number", `${call.ms} ms`),
    element("td", "number", bytes(call.bytes)),
  );
  return row;
}

function sourceItem(source) {
  const item = element("li");
  const state = source.readable ? ["label warn", "read only"] : ["label bad", "not available"];
  item.append(element("code", "", source.name), " ", element("span", ...state), ` ${source.reason}`);
  return item;
}

function show(article, server) {
  // The facts of a single server are in the header, outside its article.
  const part = (name) =>
    article.querySelector(`[data-live="${name}"]`) ?? document.querySelector(`header [data-live="${name}"]`);
  const status = part("status");
  status.textContent = server.status;
  status.className = `state ${{ ok: "good", degraded: "warn" }[server.status] ?? "bad"}`;
  part("calls").textContent = `${server.calls} call${server.calls === 1 ? "" : "s"}`;
  if (server.recentCalls.length > 0) part("recent").replaceChildren(...server.recentCalls.map(callRow));
  const sources = part("sources");
  if (sources && server.unavailable.length > 0) {
    sources.replaceChildren(...server.unavailable.map(sourceItem));
  } else if (sources) {
    const text = server.sources === 1 ? "Available." : `All ${server.sources} are available.`;
    sources.replaceChildren(element("li", "", text));
  }
}

function upstreamRow(upstream) {
  const row = element("tr");
  const name = element("th");
  name.scope = "row";
  name.title = upstream.url;
  name.append(element("code", "", upstream.name));
  const state = element("td");
  state.append(element("span", `label ${upstream.class}`, upstream.state));
  const numbers = [upstream.tools, upstream.tokens, upstream.reconnects];
  row.append(name, state, ...numbers.map((one) => element("td", "number", String(one))));
  row.append(element("td", "after", upstream.detail));
  return row;
}

function showUpstreams(upstreams) {
  const rows = document.querySelector('[data-live="upstreams"]');
  if (!rows || !upstreams) return;
  rows.replaceChildren(...upstreams.map(upstreamRow));
  const total = upstreams.reduce((sum, one) => sum + one.tokens, 0);
  document.querySelector('[data-live="tokens"]').textContent = String(total);
}

async function refresh() {
  const response = await fetch("/-/activity", { headers: { accept: "application/json" } });
  if (!response.ok) throw new Error(response.status);
  const activity = await response.json();
  const articles = [...document.querySelectorAll("article[data-server]")];
  for (const server of activity.servers) {
    const article = articles.find((one) => one.dataset.server === server.name);
    if (article) show(article, server);
  }
  showUpstreams(activity.upstreams);
}

async function poll() {
  try {
    if (document.visibilityState === "visible") await refresh();
    if (live.dataset.state === "lost") live.textContent = "Connected again.";
    live.dataset.state = "";
  } catch {
    if (live.dataset.state !== "lost") live.textContent = "The server does not answer; what you see may be old.";
    live.dataset.state = "lost";
  }
  setTimeout(poll, POLL_MS);
}

addCopyButtons();
addFilters();
setTimeout(poll, POLL_MS);
