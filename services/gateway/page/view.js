// Draws turns. What a person or a model wrote only ever becomes the data of text nodes, never HTML.

export function element(name, properties = {}, ...children) {
  const made = document.createElement(name);
  Object.assign(made, properties);
  made.append(...children.filter((child) => child !== null));
  return made;
}

const WORDS = { queued: "waits in the queue", running: "running", paused: "waits for a person", completed: "", failed: "failed",
  interrupted: "interrupted", cancelled: "cancelled" };

// One turn's list entry; the same element is kept and its parts are updated, so that a selection in it survives a delta.
export class TurnView {
  constructor(actions) {
    this.actions = actions;
    this.items = new Map();
    this.input = element("p", { className: "input" });
    this.body = element("div");
    this.state = element("p", { className: "state" });
    this.root = element("li", { className: "turn" }, this.input, this.body, this.state);
  }

  draw(turn) {
    setText(this.input, turn.input);
    for (const [id, view] of this.items) {
      if (!turn.items.has(id)) {
        view.remove();
        this.items.delete(id);
      }
    }
    for (const item of turn.items.values()) this.drawItem(item);
    this.drawState(turn);
  }

  drawItem(item) {
    let view = this.items.get(item.item_id);
    if (item.kind === "tool_call") {
      if (!view) {
        view = element("details", { className: "tool" }, element("summary"), element("pre"), element("pre", { className: "output" }));
        this.place(item, view);
      }
      const [summary, call, output] = view.children;
      const state = item.output?.final ? (item.output.error ? "failed" : "done") : (item.progress ?? "running");
      setText(summary, item.call ? `${item.call.name}: ${state}` : "tool call …");
      setText(call, item.call ? JSON.stringify(item.call.arguments ?? {}) : item.text);
      setText(output, item.output ? item.output.text + (item.output.truncated ? " … (cut)" : "") : "");
      return;
    }
    if (!view) {
      view = element("p", { className: item.kind });
      this.place(item, view);
    }
    setText(view, item.text);
    view.classList.toggle("open", item.open);
  }

  place(item, view) {
    this.items.set(item.item_id, view);
    this.body.append(view);
  }

  drawState(turn) {
    this.state.className = `state ${turn.status}`;
    const words = [WORDS[turn.status], turn.error ? `${turn.error.code}: ${turn.error.message}` : "", turn.superseded ? "superseded" : "",
      ...turn.needs.map((need) => `${need.kind} needed for ${need.tool_name}`)].filter(Boolean).join(" · ");
    const button = { queued: ["Cancel", "cancel"], paused: ["Cancel", "cancel"], running: ["Interrupt", "interrupt"] }[turn.status];
    const key = words + (button ?? "");
    if (this.key === key) return;
    this.key = key;
    this.state.replaceChildren(words, button
      ? element("button", { type: "button", textContent: button[0], onclick: () => this.actions(button[1], turn.turn_id) }) : "");
  }
}

// Appends where the text only grew, so that a long answer is not laid out anew with each delta.
function setText(node, text) {
  const known = node.firstChild;
  if (!known) {
    if (text) node.append(document.createTextNode(text));
  } else if (known.data !== text) {
    if (text.startsWith(known.data)) known.appendData(text.slice(known.data.length));
    else known.data = text;
  }
}
