// A user's token, where the gateway asks for one: in this tab's sessionStorage at most, never in a URL, a cookie or the log.

const KEY = "turnlog.token";
let kept = stored();

function stored() {
  try { return sessionStorage.getItem(KEY); } catch { return null; }
}

export const token = () => kept;

// Null forgets it.
export function keepToken(value) {
  kept = value;
  try {
    if (value === null) sessionStorage.removeItem(KEY);
    else sessionStorage.setItem(KEY, value);
  } catch { /* storage is off: it lasts as long as the page, then */ }
}
