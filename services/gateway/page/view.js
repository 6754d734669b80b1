// Draws turns. What a person or a model wrote only ever becomes the data of text nodes, never HTML.

import { question } from "/page/questions.js";

export function element(name, properties = {}, ...children) {
  const made = document.createElement(name);
  Object.assign(made, properties);
  made.append(...children.filter((child) => child !== null));
  return made;
}

const BUTTONS = { queued: ["Cancel", "cancel"], paused: ["Cancel", "cancel"], running: ["Interrupt", "interrupt"] };
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
    this.questions = element("div");
    this.root = element("li", { className: "turn" }, this.input, this.body, this.questions, this.state);
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
    const words = [WORDS[turn.status], turn.error ? `${turn.error.code}: ${turn.error.message}` : "",
      turn.superseded ? "superseded" : ""].filter(Boolean).join(" · ");
    const [label, action] = BUTTONS[turn.status] ?? (turn.superseded ? [] : ["Regenerate", "regenerate"]);
    const open = turn.needs.filter((need) => !need.answer);
    const key = JSON.stringify([words, action, open.map((need) => need.tool_call_id), turn.attempt]);
    if (this.key === key) return;
    this.key = key;
    this.state.replaceChildren(words, label
      ? element("button", { type: "button", textContent: label, onclick: () => this.actions(action, turn.turn_id) }) : "");
    this.questions.replaceChildren(...open.map((need) => question(need, (answer) =>
      this.actions("continue", turn.turn_id, { answers: [answer] }))));
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
