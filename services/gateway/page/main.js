// The page: sessions at the side, one conversation, a line to type in. It keeps nothing but which session is shown (in the
// address), a user's token (see token.js) and what the log says; a refresh, a second tab and a restarted gateway begin from the log.

import { call, path, settle } from "/page/api.js";
import { converse, placesOf } from "/page/conversation.js";
import { element } from "/page/element.js";
import { SessionList, nameOf } from "/page/sessions.js";
import { keepToken, token } from "/page/token.js";

const at = (id) => document.getElementById(id);
const CONNECTION = { connecting: "Connecting …", live: "Live", waiting: "Connection lost, trying again …", gone: "This session is not there.",
  refused: "The gateway asks who you are." };

let session = null;
let about = null;
let shown = null;
let sending = Promise.resolve();

const sessions = new SessionList(at("sessions"), at("older"), attempt);
const ACTIONS = {
  // Under a key each, but for those that need none: an interrupt or cancel that arrives twice does nothing new.
  act: (action, turn, body) => attempt(() => (["cancel", "interrupt"].includes(action) ? call : post)(
    "POST", path(session, `/turns/${turn}/${action}`), body)),
  fork: (turn) => attempt(() => askWhere(turn)),
  complain: notice,
};
const post = (_, where, body) => settle(where, body);

function notice(text) {
  at("notice").textContent = text;
}

async function attempt(work) {
  try {
    notice("");
    return await work();
  } catch (error) {
    if (error.status === 401) askWho(token() ? "The token is not, or no longer, accepted." : "This gateway asks for a user’s token.");
    else notice(error.status === undefined ? "The gateway could not be reached." : error.message);
    return null;
  }
}

function connection(state) {
  at("connection").textContent = CONNECTION[state];
  document.body.dataset.connection = state;
  if (state === "gone") forgetShown();
  if (state === "refused") askWho(token() ? "The token is not, or no longer, accepted." : "This gateway asks for a user’s token.");
}

function forgetShown() {
  shown?.stop();
  shown = null;
  at("turns").replaceChildren();
  changed({ queue: "open", turns: new Map() });
}

async function show(id) {
  forgetShown();
  session = id;
  about = null;
  connection("connecting");
  sessions.mark(id);
  at("heading").textContent = id;
  shown = converse(id, { turns: at("turns"), box: at("conversation"), announcer: at("announcer") },
    { actions: ACTIONS, changed, connection, reset: () => show(id) });
  try {
    const found = await call("GET", path(id));
    if (session === id) name(found);
  } catch { /* the connection says why */ }
}

function name(found) {
  about = found;
  at("heading").textContent = nameOf(found);
  document.title = `${nameOf(found)} · Turnlog`;
}

function changed(state) {
  const turns = [...state.turns.values()];
  const running = turns.find((turn) => turn.status === "running");
  const queued = turns.filter((turn) => turn.status === "queued").length;
  at("queue").hidden = state.queue !== "paused";
  at("waiting").hidden = queued === 0;
  at("waiting").textContent = queued === 1 ? "One turn waits in the queue." : `${queued} turns wait in the queue.`;
  if (!running && document.activeElement === at("interrupt")) at("input").focus();
  at("interrupt").hidden = !running;
  at("interrupt").dataset.turn = running?.turn_id ?? "";
}

async function create() {
  const made = await settle("/v1/sessions", { agent_id: at("agent").value });
  await sessions.load();
  location.hash = made.session_id;
  at("input").focus();
}

async function say(id, text) {
  const first = about && !about.title && !about.external_id && shown?.state.turns.size === 0 ? about.session_id : null;
  await settle(path(id, "/turns"), { input: text });
  if (first) {
    const found = await call("PATCH", path(first), { title: text.trim().replace(/\s+/g, " ").slice(0, 60) });
    if (session === id) name(found);
    await sessions.load();
  }
  return true;
}

// --- dialogs ---

function askWho(why) {
  at("token").hidden = false;
  at("access-why").textContent = why;
  at("access-token").value = "";
  if (!at("access").open) at("access").showModal();
}

function use(value) {
  at("access").close();
  keepToken(value);
  start();
}

async function askWhere(turn) {
  const places = await placesOf(session, turn.turn_id);
  at("branch-heading").textContent = `Fork turn ${turn.number}`;
  at("branch-from").replaceChildren(...places.map(([value, textContent]) => element("option", { value: String(value), textContent })));
  at("branch-input").value = "";
  at("branch").dataset.turn = turn.turn_id;
  at("branch").showModal();
}

function fork() {
  const from = at("branch-from").value;
  const input = at("branch-input").value;
  at("branch").close();
  ACTIONS.act("fork", at("branch").dataset.turn, { from: /^\d+$/.test(from) ? Number(from) : from, ...(input.trim() ? { input } : {}) });
}

// --- wiring ---

async function load() {
  const agents = await call("GET", "/v1/agents");
  at("agent").replaceChildren(...agents.map((agent) => element("option", { value: agent.agent_id, textContent: agent.name ?? agent.agent_id })));
  const found = await sessions.load();
  at("token").hidden = !token();
  const resumed = shown && document.body.dataset.connection === "refused";
  // The same person with a new token: the stream goes on where it was.
  if (resumed) shown.again();
  else if (location.hash.length > 1) show(addressed());
  else if (found.length) location.hash = found[0].session_id;
  else if (agents.length) await create();
  else notice("No agent has been announced yet: is a worker running?");
}

const start = () => attempt(load);

function addressed() {
  const name = location.hash.slice(1);
  try { return decodeURIComponent(name); } catch { return name; }
}

function submits(form, work) {
  at(form).addEventListener("submit", (event) => {
    event.preventDefault();
    work(event);
  });
}

addEventListener("hashchange", () => {
  side(false);
  show(addressed());
});
// Sessions that another tab has made.
document.addEventListener("visibilitychange", () => document.hidden || sessions.load().catch(() => {}));

submits("create", () => attempt(create));
submits("say", () => {
  const text = at("input").value;
  const id = session;
  if (!text.trim() || !id) return;
  at("input").value = "";
  // One after the other: two that are sent at once might overtake each other.
  sending = sending.then(async () => {
    const sent = await attempt(() => say(id, text));
    if (!sent && session === id && !at("input").value) at("input").value = text;
  });
});
at("input").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
    event.preventDefault();
    at("say").requestSubmit();
  }
});
at("interrupt").addEventListener("click", () => ACTIONS.act("interrupt", at("interrupt").dataset.turn));
at("resume").addEventListener("click", () => attempt(() => call("POST", path(session, "/resume"))));
at("skip").addEventListener("click", (event) => {
  event.preventDefault(); // the address names the session
  at("input").focus();
});

function side(open) {
  document.body.classList.toggle("side", open);
  at("menu").setAttribute("aria-expanded", String(open));
}
at("menu").addEventListener("click", () => side(!document.body.classList.contains("side")));

submits("access", () => use(at("access-token").value.trim()));
at("forget").addEventListener("click", () => {
  forgetShown();
  at("sessions").replaceChildren();
  use(null);
});
at("token").addEventListener("click", () => {
  forgetShown();
  askWho("Another user’s token, or none.");
});
submits("branch", fork);
at("branch-cancel").addEventListener("click", () => at("branch").close());

start();
