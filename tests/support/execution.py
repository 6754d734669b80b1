"""Runs turns of a runtime on the in-memory store."""

from domain.parts import FilePart
from domain.runtime import Attachments, NoAttachments, Runtime
from infra.system import SystemClock, SystemIds
from services.worker.executor.bounds import Bounds
from services.worker.executor.executor import Executor, Tools
from services.worker.hooks.hook import NO_HOOKS, Hooks
from tests.support.collector import Collector, Shown, SteadyLease

SECRET = "hunter2-SECRET"


def assert_nowhere(bench: "Bench", mark: str) -> None:
    """Neither stored, private parts and kept replies included, nor shown."""
    said = mark.encode()
    assert bench.store.events
    for event in bench.store.events:
        assert said not in event.payload
        assert said not in (event.private or b"")
        assert said not in event.metadata
    assert not any(said in reply for reply in bench.store.kept.values())
    assert mark not in repr(vars(bench.shown))


class Bench:
    """One session and what an executor needs."""

    def __init__(
        self,
        runtime: Runtime,
        bounds: Bounds | None = None,
        hooks: Hooks = NO_HOOKS,
        attachments: Attachments | None = None,
    ) -> None:
        self.runtime = runtime
        self.hooks = hooks
        self.told: list[str] = []
        """Names of the background hooks that the work queue was told of."""

        self.store = Collector()
        self.shown = Shown()
        self.lease = SteadyLease()
        self.bounds = bounds or Bounds()
        self.attachments = attachments or NoAttachments()

    async def executor(self, text: str, *files: FilePart) -> Executor:
        """A turn submitted and claimed, not yet executed."""
        if not self.store.events:
            await self.store.create()
        await self.store.submit(text, *files)
        return self.of(await self.store.claim())

    def of(self, claim: object) -> Executor:
        tools = Tools(
            pipeline=self.store,
            turn_log=self.store,
            notifier=self.shown,
            lease=self.lease,
            clock=SystemClock(),
            ids=SystemIds(),
            bounds=self.bounds,
            tell_hook=lambda job, agent_id: self.told.append(job.hook),
            attachments=self.attachments,
        )
        return Executor(claim, self.runtime, tools, lambda: None, self.hooks)  # type: ignore[arg-type]

    async def turn(self, text: str, *files: FilePart) -> str:
        """Submit, claim and execute to the end; the turn's id."""
        executor = await self.executor(text, *files)
        await executor.run()
        return executor.claim.turn_id
