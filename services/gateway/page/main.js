// The page: sessions at the side, one conversation, a line to type in. It keeps nothing but which session is shown (in the
// address) and what the log says; a refresh, a second tab and a restarted gateway all begin from the log.

import { call, follow, submit } from "/page/api.js";
import { TYPES, apply, emptyState } from "/page/reducer.js";
import { TurnView, element } from "/page/view.js";

const at = (id) => document.getElementById(id);
const CONNECTION = { connecting: "Connecting …", live: "Live", waiting: "Connection lost, trying again …", gone: "This session was deleted." };

let session = null;
let stopFollowing = () => {};

function notice(text) {
  at("notice").textContent = text;
}

async function attempt(work) {
  try {
    notice("");
    return await work();
  } catch (error) {
    notice(error.message);
    return null;
  }
}

function show(id) {
  stopFollowing();
  session = id;
  const state = emptyState();
  const views = new Map();
  at("turns").replaceChildren();
  at("queue").hidden = true;
  connection("connecting");
  for (const link of at("sessions").querySelectorAll("a")) {
    if (decodeURIComponent(link.hash.slice(1)) === id) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  stopFollowing = follow(id, TYPES, () => state.last, (type, message) => {
    if (type === "stream.resync") return show(id);
    const changed = apply(state, type, message);
    at("queue").hidden = state.queue !== "paused";
    if (changed === null) return undefined;
    if (!views.has(changed)) {
      const view = new TurnView((action, turn, body) => attempt(() =>
        call("POST", `/v1/sessions/${encodeURIComponent(id)}/turns/${turn}/${action}`, body)));
      views.set(changed, view);
      at("turns").append(view.root);
    }
    keepEnd(() => views.get(changed).draw(state.turns.get(changed)));
    return undefined;
  }, connection);
}

function connection(state) {
  at("connection").textContent = CONNECTION[state];
  document.body.dataset.connection = state;
}

// Whoever looks at the end keeps looking at it; whoever has scrolled back is left alone.
function keepEnd(draw) {
  const box = at("turns");
  const atEnd = box.scrollHeight - box.scrollTop - box.clientHeight < 40;
  draw();
  if (atEnd) box.scrollTop = box.scrollHeight;
}

async function listSessions() {
  const page = await call("GET", "/v1/sessions?limit=50");
  at("sessions").replaceChildren(...page.items.map((item) => element("li", {},
    element("a", { href: `#${encodeURIComponent(item.session_id)}`, textContent: item.title ?? item.external_id ?? item.session_id }))));
  return page.items;
}

async function create() {
  const made = await call("POST", "/v1/sessions", { agent_id: at("agent").value });
  await listSessions();
  location.hash = made.session_id;
}

async function start() {
  const agents = await call("GET", "/v1/agents");
  at("agent").replaceChildren(...agents.map((agent) => element("option", { value: agent.agent_id, textContent: agent.name ?? agent.agent_id })));
  const sessions = await listSessions();
  if (location.hash.length > 1) show(decodeURIComponent(location.hash.slice(1)));
  else if (sessions.length) location.hash = sessions[0].session_id;
  else if (agents.length) await create();
  else notice("No agent has been announced yet: is a worker running?");
}

addEventListener("hashchange", () => show(decodeURIComponent(location.hash.slice(1))));

at("create").addEventListener("submit", (event) => {
  event.preventDefault();
  attempt(create);
});

at("say").addEventListener("submit", async (event) => {
  event.preventDefault();
  const text = at("input").value;
  if (!text.trim() || !session) return;
  at("input").value = "";
  const sent = await attempt(() => submit(session, text));
  if (!sent && !at("input").value) at("input").value = text;
});

at("input").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
    event.preventDefault();
    at("say").requestSubmit();
  }
});

at("resume").addEventListener("click", () => attempt(() => call("POST", `/v1/sessions/${encodeURIComponent(session)}/resume`)));

attempt(start);
