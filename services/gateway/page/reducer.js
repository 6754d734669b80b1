// The client reducer of docs/events.md, pure: events and frames in, state out, no page, no network.
//
// state.turns: Map turn_id -> {turn_id, number, input, status, attempt, error, needs, stopping, from, items: Map item_id -> item}
// item: {item_id, kind, text, next, open, attempt, call, output, progress, partial}

export const TYPES = [
  "stream.open", "stream.resync", "stream.closing",
  "session.created", "session.queue_paused", "session.queue_resumed", "session.closed", "session.erased",
  "turn.queued", "turn.started", "turn.released", "turn.paused", "turn.answered", "turn.continued", "turn.interrupt_requested",
  "turn.completed", "turn.failed", "turn.interrupted", "turn.cancelled", "turn.superseded", "turn.input_rewritten",
  "item.completed", "item.superseded", "tool.started", "tool_result.snapshot", "checkpoint.reached", "runtime.event",
  "usage.recorded", "hook.scheduled", "hook.completed", "hook.failed",
  "item.started", "item.delta", "item.snapshot", "tool.progress",
];

const ENDED = { "turn.completed": "completed", "turn.failed": "failed", "turn.interrupted": "interrupted", "turn.cancelled": "cancelled" };

export function emptyState() {
  return { last: 0, turns: new Map(), queue: "open", closed: false };
}

// Applies one event and returns the turn_id that changed, or null. A committed event that was applied before changes nothing.
export function apply(state, type, message) {
  if (message.sequence !== undefined) {
    if (message.sequence <= state.last) return null;
    state.last = message.sequence;
  }
  if (type === "session.queue_paused") state.queue = "paused";
  if (type === "session.queue_resumed") state.queue = "open";
  if (type === "session.closed") state.closed = true;
  const id = message.turn_id;
  if (!id) return null;
  const data = message.data ?? {};
  if (type === "turn.queued") {
    state.turns.set(id, { turn_id: id, number: data.enqueue_sequence, input: textOf(data.input), status: "queued", attempt: 0, error: null, needs: [],
      stopping: false, from: data.forked_from?.turn_id ?? data.regenerates ?? null, again: Boolean(data.regenerates), items: new Map() });
    return id;
  }
  const turn = state.turns.get(id);
  if (!turn) return null;
  reduce(turn, type, data);
  return id;
}

function reduce(turn, type, data) {
  if (type in ENDED) {
    turn.status = ENDED[type];
    turn.error = data.error ?? null;
    turn.needs = [];
    turn.stopping = false;
    dropOpen(turn);
    return;
  }
  switch (type) {
    case "turn.started":
      if (data.attempt > turn.attempt) dropOpen(turn);
      turn.attempt = data.attempt;
      turn.status = "running";
      turn.needs = [];
      break;
    case "turn.paused":
      turn.status = "paused";
      turn.needs = data.requirements;
      break;
    case "turn.answered":
      turn.needs = turn.needs.map((need) => need.tool_call_id === data.tool_call_id ? { ...need, answer: data.answer } : need);
      break;
    case "turn.interrupt_requested":
      turn.stopping = true;
      break;
    case "turn.superseded":
      turn.superseded = true;
      break;
    case "item.superseded":
      for (const item of data.item_ids) turn.items.delete(item);
      break;
    case "item.started":
      if (data.attempt >= turn.attempt && !turn.items.has(data.item_id)) turn.items.set(data.item_id, blank(data));
      break;
    case "item.snapshot":
      if (data.attempt >= turn.attempt && turn.items.get(data.item_id)?.open !== false)
        turn.items.set(data.item_id, { ...blank(data), text: data.text, next: data.next_index });
      break;
    case "item.delta": {
      const item = turn.items.get(data.item_id);
      if (item?.open && item.next === data.index) {
        item.text += data.text;
        item.next += 1;
      }
      break;
    }
    case "item.completed": {
      const before = turn.items.get(data.item_id);
      turn.items.set(data.item_id, { ...blank(data), text: data.text ?? "", open: false, call: data.tool_call ?? null,
        partial: data.partial ?? false, output: before?.output ?? null });
      break;
    }
    case "tool.progress": {
      const item = turn.items.get(data.item_id);
      if (item) item.progress = data.text ?? `${Math.round((data.fraction ?? 0) * 100)} %`;
      break;
    }
    case "tool_result.snapshot": {
      const item = turn.items.get(data.item_id);
      if (item) {
        item.output = { text: data.output, final: data.final ?? false, error: data.is_error ?? false, truncated: data.truncated ?? false };
        item.progress = null;
      }
      break;
    }
  }
}

function blank(data) {
  return { item_id: data.item_id, kind: data.kind, text: "", next: 0, open: true, attempt: data.attempt, call: null, output: null,
    progress: null, partial: false };
}

function dropOpen(turn) {
  for (const [id, item] of turn.items) if (item.open) turn.items.delete(id);
}

function textOf(parts) {
  return (parts ?? []).map((part) => part.text ?? `[${part.name ?? "file"}]`).join("\n");
}
