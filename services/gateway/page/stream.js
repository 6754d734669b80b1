// Follows a session by the browser's own EventSource, which reconnects by itself with Last-Event-ID. It gives up for good on
// some answers; then a new one is made from the last sequence that the page has, with a new ticket where there is a token.

import { call, path } from "/page/api.js";
import { token } from "/page/token.js";

// onEvent(type, message) for each event; onState("live" | "waiting" | "gone" | "refused"). Returns {stop(), again()};
// `again` is for whoever has got another token meanwhile.
export function follow(session, types, lastSequence, onEvent, onState) {
  let source = null;
  let timer = null;
  let tries = 0;
  let round = 0; // of the newest attempt; what an older one still hears of is nobody's business

  async function open() {
    const mine = ++round;
    clearTimeout(timer);
    source?.close();
    let ticket = "";
    try {
      // Asked also where the stream needs no ticket: it tells whether the session is still there, which EventSource does not.
      const access = token() ? await call("POST", path(session, "/stream-ticket")) : await call("GET", path(session));
      if (access.ticket) ticket = `&ticket=${encodeURIComponent(access.ticket)}`;
    } catch (error) {
      if (mine !== round) return;
      if (error.status === 404) onState("gone");
      else if (error.status === 401 || error.status === 403) onState("refused");
      else again();
      return;
    }
    if (mine !== round) return;
    source = new EventSource(path(session, `/events?after_sequence=${lastSequence()}${ticket}`));
    source.onerror = () => {
      if (mine !== round) return;
      onState("waiting");
      if (source.readyState === EventSource.CLOSED) again();
    };
    for (const type of types) source.addEventListener(type, (event) => mine === round && take(type, JSON.parse(event.data)));
  }

  function take(type, message) {
    if (type === "stream.open") {
      tries = 0;
      onState("live");
    }
    if (type === "stream.closing") onState("waiting");
    onEvent(type, message);
  }

  function again() {
    onState("waiting");
    tries += 1;
    timer = setTimeout(open, Math.min(5000, 250 * 2 ** tries) * (0.5 + Math.random() / 2));
  }

  // A machine that is back on its network need not wait for a timer.
  function online() {
    if (source?.readyState !== EventSource.OPEN) open();
  }

  addEventListener("online", online);
  open();
  function stop() {
    round += 1;
    removeEventListener("online", online);
    clearTimeout(timer);
    source?.close();
  }
  return { stop, again: open };
}
