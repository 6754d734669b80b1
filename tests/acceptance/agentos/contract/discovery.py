"""§2: what there is."""

from tests.acceptance.agentos.contract.story import Story


async def tell(s: Story) -> None:
    for path in ("/health", "/info", "/config", "/models", "/nowhere", "/eval-runs"):
        await s.get(path, path)
    for kind, names in (("agents", ("plain", "tooled")), ("teams", ("crew",)), ("workflows", ("flow", "gated"))):
        listed = await s.get(f"/{kind}", f"/{kind}")
        s.fact(f"all {kind}", sorted(one["id"] for one in listed))
        for name in (*names, "nope"):
            await s.get(f"/{kind}/{name}", f"/{kind}/{name}")
