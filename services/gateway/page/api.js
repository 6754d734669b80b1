// The gateway's public API, as far as the page uses it. Bodies are JSON; refusals become errors with the problem's own words.

import { token } from "/page/token.js";

export class Refused extends Error {
  constructor(status, detail) {
    super(detail);
    this.status = status;
  }
}

export const path = (session, rest = "") => `/v1/sessions/${encodeURIComponent(session)}${rest}`;

export async function call(method, where, body, key) {
  const headers = { Accept: "application/json" };
  if (token()) headers.Authorization = `Bearer ${token()}`;
  if (body !== undefined) headers["Content-Type"] = "application/json";
  if (key) headers["Idempotency-Key"] = key;
  const answer = await fetch(where, { method, headers, body: body === undefined ? undefined : JSON.stringify(body) });
  const text = await answer.text();
  if (!answer.ok) {
    let problem = {};
    try { problem = JSON.parse(text); } catch { /* not a problem document: the status says enough */ }
    throw new Refused(answer.status, problem.detail ?? problem.title ?? `HTTP ${answer.status}`);
  }
  return text ? JSON.parse(text) : null;
}

// A POST under a key of its own. An unclear answer (no connection, a gateway that is away) is tried again with the same key, so
// it never does anything twice.
export async function settle(where, body) {
  const key = newKey();
  for (let attempt = 0; ; attempt += 1) {
    try {
      return await call("POST", where, body, key);
    } catch (error) {
      if (attempt >= 9 || ![undefined, 502, 503, 504].includes(error.status)) throw error;
      await new Promise((resolve) => setTimeout(resolve, Math.min(5000, 250 * 2 ** attempt)));
    }
  }
}

// randomUUID exists on secure origins only; getRandomValues everywhere.
function newKey() {
  return [...crypto.getRandomValues(new Uint8Array(16))].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}
