"""The built-in hook that tells another service how a turn ended."""

import time
from collections.abc import Sequence

import httpx2
import msgspec

from services.worker.hooks.declared import End, Hook, HookRun
from services.worker.hooks.signing import sign

_encode = msgspec.json.Encoder().encode


class WebhookRefused(Exception):
    """The receiver did not answer with 2xx; the job is tried again."""

    def __init__(self, status: int) -> None:
        super().__init__(f"the receiver answered {status}")
        self.status = status


class Webhook:
    """Posts JSON. A redirect is no success: it would carry a signed body to somebody else."""

    def __init__(self, url: str, secret: str, timeout: float) -> None:
        """Raises ValueError for what cannot be posted to, or a secret that is none."""
        if not url.startswith(("https://", "http://")):
            raise ValueError("a webhook's url begins with https:// (or http://, inside one's own network)")
        if len(secret) < 16:
            raise ValueError("a webhook's secret has at least 16 characters")
        self._url = url
        self._secret = secret
        self._timeout = timeout

    async def __call__(self, run: HookRun) -> None:
        body = _encode(
            {
                "type": f"turn.{run.status}",
                "session_id": run.session_id,
                "turn_id": run.turn_id,
                "agent_id": run.agent_id,
                "job_id": run.job_id,
                "input": run.input,
                "output": run.output,
                "error_code": run.error_code,
            }
        )
        timestamp = str(int(time.time()))
        headers = {
            "Content-Type": "application/json",
            "Turnlog-Timestamp": timestamp,
            "Turnlog-Signature": sign(self._secret, body, timestamp),
            "Turnlog-Delivery": run.job_id or "",
        }
        async with httpx2.AsyncClient(timeout=self._timeout, follow_redirects=False) as http:
            answer = await http.post(self._url, content=body, headers=headers)
        if not 200 <= answer.status_code < 300:
            raise WebhookRefused(answer.status_code)


def webhook(
    url: str,
    *,
    secret: str,
    name: str = "webhook",
    after: Sequence[End] = ("completed", "failed", "interrupted"),
    timeout: float = 10.0,
) -> Hook:
    """A post-hook that posts the end of a turn to `url`, signed with `secret` (HMAC-SHA256), always in the background.
    Receivers check with `verify_webhook`; the header `Turnlog-Delivery` is the job's id, the same at each try."""
    return Hook(function=Webhook(url, secret, timeout), name=name, background=True, after=after)
