// What a paused turn asks, as buttons and a line to type in. Only text nodes: arguments were written by a model.

import { element } from "/page/view.js";

// One question; `answer` gets what `POST …/continue` takes.
export function question(need, answer) {
  const box = element("form", { className: "question" },
    element("span", { textContent: `${need.kind} needed: ${need.tool_name}` }),
    element("code", { textContent: JSON.stringify(need.arguments ?? {}) }));
  const refuse = element("button", { type: "button", textContent: "Refuse", onclick: () => answer({ tool_call_id: need.tool_call_id, approved: false }) });
  if (need.kind === "approval") {
    box.onsubmit = (event) => { event.preventDefault(); answer({ tool_call_id: need.tool_call_id, approved: true }); };
    box.append(element("button", { type: "submit", textContent: "Approve" }), refuse);
    return box;
  }
  const line = element("input", { required: true, ariaLabel: `Answer for ${need.tool_name}`, placeholder: "JSON or text" });
  box.onsubmit = (event) => { event.preventDefault(); answer({ tool_call_id: need.tool_call_id, ...given(need.kind, line.value) }); };
  box.append(line, element("button", { type: "submit", textContent: "Answer" }), refuse);
  return box;
}

function given(kind, text) {
  let value = text;
  try { value = JSON.parse(text) ?? text; } catch { /* a text, then */ }
  if (kind === "external") return { result: value };
  return { arguments: value !== null && typeof value === "object" && !Array.isArray(value) ? value : { answer: value } };
}
