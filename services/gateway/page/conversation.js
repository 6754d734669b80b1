// One session on the screen: follows its stream, folds it, draws what changed once a frame, and says aloud what came to its end.

import { call, path } from "/page/api.js";
import { element } from "/page/element.js";
import { TYPES, apply, emptyState } from "/page/reducer.js";
import { follow } from "/page/stream.js";
import { TurnView } from "/page/view.js";

// parts: {turns, box, announcer}: elements. hooks: {actions, changed(state), connection(state), reset()}. Returns {state, stop(), again()}.
export function converse(session, parts, hooks) {
  const state = emptyState();
  const views = new Map();
  const dirty = new Set();
  let epoch = null;
  let knownAtFirst = null;
  let drawing = false;
  parts.turns.replaceChildren();

  const stream = follow(session, TYPES, () => state.last, take, hooks.connection);
  const actions = { ...hooks.actions, numberOf: (turn) => state.turns.get(turn)?.number };

  function take(type, message) {
    if (type === "stream.open") {
      // The store was restored from a backup: what this page knows may never have happened.
      if (epoch !== null && message.epoch !== epoch) return location.reload();
      epoch = message.epoch;
      knownAtFirst ??= message.last_sequence;
    }
    if (type === "stream.resync") return hooks.reset();
    const fresh = message.sequence > Math.max(state.last, knownAtFirst ?? 0);
    const changed = apply(state, type, message);
    if (changed !== null) dirty.add(changed);
    if (fresh) say(type, message.data ?? {});
    if (!drawing) {
      drawing = true;
      // A tab that nobody sees gets no animation frames.
      if (document.hidden) setTimeout(draw, 200);
      else requestAnimationFrame(draw);
    }
    return undefined;
  }

  function draw() {
    drawing = false;
    // Whoever looks at the end keeps looking at it; whoever has scrolled back is left alone.
    const atEnd = parts.box.scrollHeight - parts.box.scrollTop - parts.box.clientHeight < 40;
    for (const id of dirty) {
      if (!views.has(id)) {
        views.set(id, new TurnView(actions));
        parts.turns.append(views.get(id).root);
      }
      views.get(id).draw(state.turns.get(id));
    }
    dirty.clear();
    hooks.changed(state);
    if (atEnd) parts.box.scrollTop = parts.box.scrollHeight;
  }

  // For those who listen: whole texts and what needs them, not each delta.
  function say(type, data) {
    const text = type === "item.completed" && data.kind === "text" ? data.text
      : type === "turn.paused" ? data.requirements.map((need) => `${need.kind} needed for ${need.tool_name}`).join(", ")
      : type === "turn.failed" ? `The turn failed: ${data.error.message}`
      : type === "turn.interrupted" ? "The turn was interrupted" : "";
    if (!text) return;
    parts.announcer.append(element("span", { textContent: `${text} ` }));
    while (parts.announcer.childElementCount > 5) parts.announcer.firstElementChild.remove();
  }

  return { state, ...stream };
}

// The places that a turn can be forked at, as [value of `from`, words].
export async function placesOf(session, turn) {
  const found = await call("GET", path(session, `/turns/${turn}/checkpoints`));
  const kept = found.filter((place) => place.reason === "tool_batch");
  return [["end", "its end"], ...kept.map((place, index) => [place.sequence, `after its batch of tools ${index + 1} (event ${place.sequence})`]),
    ["last_user", "before its message"]];
}
