"""What streams rely on in the HTTP server (ADR 0002): its flow control, its idea of a finished response, its scope."""

import asyncio

from tests.support.peers import frames_of, raw_stream, read_all
from tests.support.streaming import FakeBroker, Log, stream_gateway, watching

S = "session"


async def test_a_request_behind_an_open_stream_waits_and_disturbs_nothing() -> None:
    log, broker = Log(), FakeBroker()
    log.append(S)
    loop = asyncio.get_running_loop()
    async with (
        stream_gateway(log, broker) as gateway,
        watching(gateway.url) as (client,),
        raw_stream(gateway.port, S) as peer,
    ):
        await loop.sock_sendall(peer, f"GET /v1/sessions/{S}/events HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        other = await client.stream(S, 0).opened()
        await other.sequence(1)
        assert gateway.hub.viewers == 2
        broker.event(S, log.append(S))
        await other.sequence(2)
        broker.control(S, "revoked")
        frames = frames_of(await read_all(peer))
    assert [frame.id or frame.json.get("reason") for frame in frames] == ["0", "1", "2", "revoked"]


async def test_the_connection_ends_with_its_stream() -> None:
    log, broker = Log(), FakeBroker()
    log.append(S, "session.closed")
    log.append(S)
    async with stream_gateway(log, broker) as gateway, raw_stream(gateway.port, S) as peer:
        answer = await asyncio.wait_for(read_all(peer), 5)
        assert b"transfer-encoding: chunked" in answer.lower()
        assert answer.endswith(b"\r\n0\r\n\r\n")
        assert frames_of(answer)[-1].json == {"reason": "closed"}


async def test_half_closing_the_connection_ends_the_stream() -> None:
    log, broker = Log(), FakeBroker()
    log.append(S)
    async with stream_gateway(log, broker) as gateway, raw_stream(gateway.port, S) as peer:
        async with asyncio.timeout(5):
            while not gateway.hub.viewers:
                await asyncio.sleep(0.01)
            peer.shutdown(1)
            while gateway.hub.viewers:
                await asyncio.sleep(0.01)


async def test_http_1_0_clients_are_served() -> None:
    log, broker = Log(), FakeBroker()
    log.append(S, "session.closed")
    async with stream_gateway(log, broker) as gateway:
        reader, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
        writer.write(f"GET /v1/sessions/{S}/events?after_sequence=0 HTTP/1.0\r\nHost: x\r\n\r\n".encode())
        answer = await asyncio.wait_for(reader.read(), 5)
        writer.close()
        assert [frame.event for frame in frames_of(answer)] == ["stream.open", "session.closed", "stream.closing"]
