// The gateway's public API, as far as the page uses it. Bodies are JSON; refusals become errors with the problem's own words.

export async function call(method, path, body, key) {
  const headers = { Accept: "application/json" };
  if (body !== undefined) headers["Content-Type"] = "application/json";
  if (key) headers["Idempotency-Key"] = key;
  const answer = await fetch(path, { method, headers, body: body === undefined ? undefined : JSON.stringify(body) });
  const text = await answer.text();
  if (!answer.ok) {
    let problem = {};
    try { problem = JSON.parse(text); } catch { /* not a problem document: the status says enough */ }
    const error = new Error(problem.detail ?? problem.title ?? `HTTP ${answer.status}`);
    error.status = answer.status;
    throw error;
  }
  return text ? JSON.parse(text) : null;
}

// Submits a turn. An unclear answer (no connection, 503) is tried again with the same key, so it never makes a second turn.
export async function submit(session, input) {
  const key = crypto.randomUUID?.() ?? `${Date.now()}-${Math.random()}`;
  for (let attempt = 0; ; attempt += 1) {
    try {
      return await call("POST", `/v1/sessions/${encodeURIComponent(session)}/turns`, { input }, key);
    } catch (error) {
      if (attempt >= 7 || (error.status !== undefined && error.status !== 503)) throw error;
      await new Promise((resolve) => setTimeout(resolve, Math.min(5000, 250 * 2 ** attempt)));
    }
  }
}

// Follows a session by the browser's own EventSource, which reconnects by itself with Last-Event-ID. It gives up for good on
// some answers; then a new one is made from the last sequence the page has. Returns a function that ends it.
export function follow(session, types, lastSequence, onEvent, onState) {
  let source = null;
  let timer = null;
  let ended = false;
  let tries = 0;

  function open() {
    source = new EventSource(`/v1/sessions/${encodeURIComponent(session)}/events?after_sequence=${lastSequence()}`);
    source.onopen = () => { tries = 0; onState("live"); };
    source.onerror = () => {
      onState("waiting");
      if (source.readyState === EventSource.CLOSED) again();
    };
    for (const type of types) source.addEventListener(type, (event) => onEvent(type, JSON.parse(event.data)));
  }

  function again() {
    tries += 1;
    timer = setTimeout(async () => {
      try {
        await call("GET", `/v1/sessions/${encodeURIComponent(session)}`);
      } catch (error) {
        if (error.status === 404) return onState("gone");
      }
      if (!ended) open();
    }, Math.min(5000, 250 * 2 ** tries) * (0.5 + Math.random() / 2));
  }

  open();
  return () => { ended = true; clearTimeout(timer); source.close(); };
}
