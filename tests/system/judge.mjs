// Watches streams with npm's WHATWG EventSource, which reconnects as a browser does. Standard input: {urls, reducer}. Prints a
// JSON line for each `open`, and one in the end with what each stream was told and what the page's reducer makes of it.

import { readFileSync } from "node:fs";
import { EventSource } from "eventsource";

const { urls, reducer } = JSON.parse(readFileSync(0, "utf8"));
const { TYPES, apply, emptyState } = await import(`data:text/javascript,${encodeURIComponent(readFileSync(reducer, "utf8"))}`);
const say = (what) => process.stdout.write(`${JSON.stringify(what)}\n`);

function watch(url, index) {
  const found = { heard: [], opens: 0, refusals: [] };
  const state = emptyState();
  return new Promise((resolve) => {
    const source = new EventSource(url);
    source.addEventListener("error", (event) => {
      if (event.code !== undefined) found.refusals.push(event.code);
    });
    for (const type of TYPES) {
      source.addEventListener(type, (event) => {
        const message = JSON.parse(event.data);
        found.heard.push({ type, id: event.lastEventId, at: Date.now(), message });
        apply(state, type, message);
        if (type === "stream.open") {
          found.opens += 1;
          say({ open: index, opens: found.opens });
        }
        if (type === "turn.completed") {
          source.close();
          const turns = [...state.turns.values()].map((turn) => ({ ...turn, items: [...turn.items.values()] }));
          resolve({ ...found, folded: { ...state, turns } });
        }
      });
    }
  });
}

say({ done: await Promise.all(urls.map(watch)) });
