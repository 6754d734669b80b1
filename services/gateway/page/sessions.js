// The list of sessions at the side.

import { call } from "/page/api.js";
import { element } from "/page/element.js";

const PAGE = 30;

export function nameOf(session) {
  return session.title ?? session.external_id ?? `${session.agent_id}, ${new Date(session.created_at).toLocaleString()}`;
}

export class SessionList {
  constructor(list, older, attempt) {
    this.list = list;
    this.older = older;
    this.cursor = null;
    this.current = null;
    older.addEventListener("click", () => attempt(() => this.more()));
  }

  // The newest ones, anew. Returns them.
  async load() {
    const page = await call("GET", `/v1/sessions?limit=${PAGE}`);
    this.list.replaceChildren();
    this.add(page);
    return page.items;
  }

  async more() {
    const before = this.list.lastElementChild;
    this.add(await call("GET", `/v1/sessions?limit=${PAGE}&cursor=${encodeURIComponent(this.cursor)}`));
    before?.nextElementSibling?.querySelector("a").focus();
  }

  add(page) {
    this.list.append(...page.items.map((item) => {
      const link = element("a", { href: `#${encodeURIComponent(item.session_id)}`, textContent: nameOf(item) });
      link.dataset.names = JSON.stringify([item.session_id, item.external_id]);
      return element("li", {}, link);
    }));
    this.cursor = page.next_cursor;
    this.older.hidden = page.next_cursor === null;
    this.mark(this.current);
  }

  mark(session) {
    this.current = session;
    for (const link of this.list.querySelectorAll("a")) {
      if (JSON.parse(link.dataset.names).includes(session)) link.setAttribute("aria-current", "page");
      else link.removeAttribute("aria-current");
    }
  }
}
