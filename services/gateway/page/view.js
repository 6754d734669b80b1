// Draws turns.

import { element, setText } from "/page/element.js";
import { answered, question } from "/page/questions.js";

const WORDS = { queued: "waits in the queue", running: "running", paused: "waits for a person", completed: "completed", failed: "failed",
  interrupted: "interrupted", cancelled: "cancelled" };

// What a tool call without a result is doing, by its turn's status.
const CALLS = { running: "running", paused: "waits" };

// One turn's list entry; the same element is kept and its parts are updated, so that focus and selection in it survive a delta.
// `actions`: {act(action, turn_id, body), fork(turn), complain(sentence), numberOf(turn_id)}.
export class TurnView {
  constructor(actions) {
    this.actions = actions;
    this.items = new Map();
    this.input = element("p", { className: "input" });
    this.body = element("div");
    this.words = element("span");
    this.buttons = element("span", { className: "row" });
    this.questions = element("div");
    this.article = element("article", {}, this.input, this.body, this.questions,
      element("div", { className: "state row" }, this.words, this.buttons));
    this.root = element("li", { className: "turn" }, this.article);
  }

  draw(turn) {
    setText(this.input, turn.input);
    for (const [id, view] of this.items) {
      if (!turn.items.has(id)) {
        view.remove();
        this.items.delete(id);
      }
    }
    for (const item of turn.items.values()) this.drawItem(item, CALLS[turn.status] ?? "not finished");
    this.drawState(turn);
    this.drawQuestions(turn);
  }

  drawItem(item, unfinished) {
    let view = this.items.get(item.item_id);
    if (item.kind === "tool_call") {
      if (!view) {
        view = element("details", { className: "tool" }, element("summary"),
          element("p", { className: "quiet", textContent: "Arguments" }), element("pre"),
          element("p", { className: "quiet", textContent: "Result" }), element("pre", { className: "output" }));
        this.place(item, view);
      }
      const [summary, , call, , output] = view.children;
      const underway = unfinished === "running" ? (item.progress ?? unfinished) : unfinished;
      const state = item.output?.final ? (item.output.error ? "failed" : "done") : underway;
      setText(summary, item.call ? `${item.call.name}: ${state}` : "tool call …");
      setText(call, item.call ? JSON.stringify(item.call.arguments ?? {}) : item.text);
      setText(output, item.output ? item.output.text + (item.output.truncated ? " … (cut)" : "") : "none yet");
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
    const words = [turn.stopping ? "is being interrupted" : WORDS[turn.status],
      turn.error ? `${turn.error.code}: ${turn.error.message}` : "",
      turn.from ? `${turn.again ? "answers again" : "forked from"} turn ${this.actions.numberOf(turn.from) ?? "?"}` : "",
      turn.superseded ? "superseded by a newer answer" : ""].filter(Boolean).join(" · ");
    const key = JSON.stringify([words, turn.status, turn.superseded]);
    if (this.key === key) return;
    this.key = key;
    this.root.className = `turn ${turn.status}${turn.superseded ? " superseded" : ""}`;
    this.article.setAttribute("aria-label", `Turn ${turn.number}, ${WORDS[turn.status]}`);
    this.article.setAttribute("aria-busy", String(turn.status === "running"));
    setText(this.words, words);
    // Whoever has just used a button of this turn goes on from here, not from the top of the page.
    const focused = this.article.contains(document.activeElement);
    this.buttons.replaceChildren(...this.buttonsOf(turn));
    if (focused && !this.article.contains(document.activeElement)) {
      this.article.tabIndex = -1;
      this.article.focus({ preventScroll: true });
    }
  }

  buttonsOf(turn) {
    const button = (textContent, onclick) => element("button", { type: "button", textContent, onclick });
    if (turn.status === "running") return [];
    if (turn.status === "queued" || turn.status === "paused") return [button("Cancel", () => this.actions.act("cancel", turn.turn_id))];
    const fork = button("Fork …", () => this.actions.fork(turn));
    return turn.superseded ? [fork] : [button("Regenerate", () => this.actions.act("regenerate", turn.turn_id)), fork];
  }

  drawQuestions(turn) {
    const key = JSON.stringify(turn.needs.map((need) => [need.tool_call_id, need.item_id, need.answer]));
    if (this.asked === key) return;
    this.asked = key;
    const inside = this.questions.contains(document.activeElement);
    this.questions.replaceChildren(...turn.needs.map((need) => need.answer ? answered(need)
      : question(need, (answer) => this.actions.act("continue", turn.turn_id, { answers: [answer] }), this.actions.complain)));
    if (inside) (this.questions.querySelector("textarea") ?? this.article).focus({ preventScroll: true });
  }
}
