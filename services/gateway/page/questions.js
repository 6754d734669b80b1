// What a paused turn asks, as buttons and lines to type in. Only text nodes: names and arguments were written by a model.

import { element } from "/page/element.js";

const WORDS = { approval: "Approval needed", input: "Input needed", external: "Result needed" };
let count = 0;

// One question; `answer` gets what `POST …/continue` takes, `complain` a sentence where nothing can be sent.
export function question(need, answer, complain) {
  // Call ids are used again; the item says which question is meant.
  const meant = need.item_id ? { tool_call_id: need.tool_call_id, item_id: need.item_id } : { tool_call_id: need.tool_call_id };
  const reply = (given) => answer({ ...meant, ...given });
  const note = element("input", { autocomplete: "off" });
  const noted = () => (note.value.trim() ? { note: note.value.trim() } : {});
  const refuse = element("button", { type: "button", textContent: "Refuse", onclick: () => reply({ approved: false, ...noted() }) });
  const value = element("textarea", { rows: 2, spellcheck: false });
  let yes;
  if (need.kind === "approval") {
    const proposed = JSON.stringify(need.arguments ?? {}, null, 1);
    value.value = proposed;
    value.rows = Math.min(10, proposed.split("\n").length);
    yes = () => {
      const changed = value.value.trim() !== proposed.trim();
      const given = changed ? objectIn(value.value) : undefined;
      if (changed && !given) return complain("The arguments must be a JSON object.");
      return reply({ approved: true, ...(given ? { arguments: given } : {}), ...noted() });
    };
  } else {
    value.required = true;
    value.placeholder = "JSON or text";
    yes = () => reply({ ...given(need.kind, value.value), ...noted() });
  }
  const box = element("form", { className: "question" },
    element("p", {}, `${WORDS[need.kind] ?? need.kind}: `, element("strong", { textContent: need.tool_name })),
    need.kind === "approval" ? null : element("pre", { textContent: JSON.stringify(need.arguments ?? {}) }),
    labelled(need.kind === "approval" ? "Arguments" : "Answer", value),
    labelled("Note (optional)", note),
    element("div", { className: "row" },
      element("button", { type: "submit", textContent: need.kind === "approval" ? "Approve" : "Answer" }), refuse));
  box.setAttribute("aria-label", `${WORDS[need.kind] ?? need.kind}: ${need.tool_name}`);
  box.onsubmit = (event) => {
    event.preventDefault();
    yes();
  };
  return box;
}

// What somebody has answered already, for whoever looks in from another tab.
export function answered(need) {
  const { approved, note, by } = need.answer;
  const what = approved === false ? "refused" : approved ? "approved" : "answered";
  return element("p", { className: "quiet", textContent: `${need.tool_name}: ${what}${by ? ` by ${by}` : ""}${note ? ` (${note})` : ""}` });
}

function labelled(text, control) {
  count += 1;
  control.id = `answer-${count}`;
  return element("div", { className: "field" }, element("label", { htmlFor: control.id, textContent: text }), control);
}

function objectIn(text) {
  try {
    const value = JSON.parse(text);
    return value !== null && typeof value === "object" && !Array.isArray(value) ? value : null;
  } catch {
    return null;
  }
}

function given(kind, text) {
  let value = text;
  try { value = JSON.parse(text) ?? text; } catch { /* a text, then */ }
  if (kind === "external") return { result: value };
  return { arguments: objectIn(text) ?? { answer: value } };
}
