"""The streams: made, kept, made again; never a reason for anything else to fail."""

import shutil

from nats.js import JetStreamContext
from nats.js.api import DiscardPolicy, RetentionPolicy, StorageType, StreamConfig
from structlog.testing import capture_logs

from infra.embedded import EmbeddedNats
from infra.nats.connection import open_broker
from infra.nats.streams import open_streams
from tests.support.broker import broker_options, until

NAMES = ["TURNLOG_EVENTS", "TURNLOG_HOOKS", "TURNLOG_LIVE"]


async def configurations(streams: JetStreamContext) -> dict[str, StreamConfig]:
    return {str(info.config.name): info.config for info in await streams.streams_info()}


async def test_they_are_as_the_design_says(nats: EmbeddedNats) -> None:
    async with (
        open_broker(broker_options(nats, "agent")) as agent,
        open_broker(broker_options(nats, "worker")) as worker,
        open_broker(broker_options(nats, "operator")) as operator,
        open_streams(agent) as first,
        open_streams(worker) as second,
    ):
        await first.ready()
        await second.ready()
        made = await configurations((await operator.connected()).jetstream())
    assert sorted(made) == NAMES
    events, hooks, live = (made[name] for name in NAMES)
    assert (events.subjects, events.storage) == (["turnlog.session.*.event"], StorageType.FILE)
    assert (events.max_age, events.max_bytes, events.duplicate_window) == (600, 256 << 20, 120)
    assert (live.subjects, live.storage) == (["turnlog.session.*.live.*"], StorageType.MEMORY)
    assert (live.max_age, live.max_bytes) == (600, 64 << 20)
    assert (live.allow_rollup_hdrs, live.allow_direct, live.allow_msg_ttl) == (True, True, True)
    assert (hooks.subjects, hooks.retention) == (["turnlog.hooks"], RetentionPolicy.WORK_QUEUE)
    assert all(stream.discard == DiscardPolicy.OLD and stream.num_replicas == 1 for stream in made.values())


async def test_a_wiped_broker_has_them_again(nats: EmbeddedNats) -> None:
    async with open_broker(broker_options(nats, "agent")) as agent, open_streams(agent) as streams:
        await streams.ready()
        await nats.stop()
        shutil.rmtree(nats.store)
        await until(lambda: not streams.are_ready)
        await nats.start()
        await streams.ready()
        for name in NAMES:
            assert (await agent.client.jetstream().stream_info(name)).state.messages == 0


async def test_a_new_version_changes_what_it_finds_once(nats: EmbeddedNats) -> None:
    subjects = ["turnlog.session.*.event"]
    async with open_broker(broker_options(nats, "operator")) as operator:
        foreign = (await operator.connected()).jetstream()
        await foreign.add_stream(StreamConfig(name="TURNLOG_EVENTS", subjects=subjects, max_age=60))
        live = StreamConfig(name="TURNLOG_LIVE", subjects=["turnlog.session.*.live.*"], storage=StorageType.FILE)
        await foreign.add_stream(live)
        with capture_logs() as logs:
            async with open_broker(broker_options(nats, "agent")) as agent, open_streams(agent) as streams:
                await streams.ready()
                made = await configurations(foreign)
                assert made["TURNLOG_EVENTS"].max_age == 600
                assert made["TURNLOG_LIVE"].storage == StorageType.FILE  # cannot be changed in place
                # Another version changes it back: this process leaves it so, or they would do it for ever.
                await foreign.update_stream(StreamConfig(name="TURNLOG_EVENTS", subjects=subjects, max_age=60))
                await nats.restart()
                await until(lambda: not streams.are_ready)
                await streams.ready()
                await operator.connected()
                made = await configurations(operator.client.jetstream())
                assert made["TURNLOG_EVENTS"].max_age == 60
                assert sorted(made) == NAMES
    events = [line["event"] for line in logs if line["event"].startswith("stream")]
    assert sorted(events) == ["stream changed", "stream keeps another configuration"]


async def test_each_time_they_are_made_is_told_once(nats: EmbeddedNats) -> None:
    """What was published between a connect and that moment is in no stream."""
    made: list[bool] = []
    async with open_broker(broker_options(nats, "agent")) as agent, open_streams(agent) as streams:
        streams.listen(lambda: made.append(streams.are_ready))
        await until(lambda: made == [True])
        await nats.stop()
        shutil.rmtree(nats.store)
        await until(lambda: not streams.are_ready)
        assert made == [True]
        await nats.start()
        await until(lambda: made == [True, True])
