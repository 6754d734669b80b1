"""The OpenAPI document against the running gateway: whatever is sent, no answer is one that it does not describe."""

import asyncio
from collections import Counter
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from schemathesis import GenerationMode
from schemathesis.checks import (
    content_type_conformance,
    not_a_server_error,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from tests.support.databases import Databases
from tests.support.gateways import AGENT, http_stand, user_token

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]
DOCUMENTED_5XX = {503, 504}
PARTS = 4

NEVER_FINE = {
    "POST /v1/sessions",
    "POST /v1/sessions/{session_ref}/resume",
    "POST /v1/sessions/{session_ref}/turns/{turn_ref}/interrupt",
    "POST /v1/sessions/{session_ref}/turns/{turn_ref}/continue",
    "POST /v1/sessions/{session_ref}/turns/{turn_ref}/fork",
    "POST /v1/sessions/{session_ref}/turns/{turn_ref}/regenerate",
}
"""No generated agent_id is an agent's; and without a worker nothing runs, pauses or ends, and no queue is paused."""


def _send(operation: Any, mode: GenerationMode, url: str, known: dict[str, str], examples: int) -> Counter[int]:
    """Send generated requests of one operation; how often each status came. `known`: parts of the path that exist."""
    names = {parameter.name for parameter in operation.path_parameters}
    path = {name: value for name, value in known.items() if name in names} or None
    statuses: Counter[int] = Counter()

    @seed(20_261_130)
    @settings(
        max_examples=examples,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy(generation_mode=mode, path_parameters=path))
    def run(case: Any) -> None:
        if isinstance(case.query, dict) and str(case.query.get("min_sequence", 0)).isdigit():
            # Each unreached one takes its 5 s; that 504 has a test of its own.
            case.query.pop("min_sequence", None)
        headers = {"Authorization": f"Bearer {user_token()}", "Accept": "application/json"}
        response = case.call(base_url=url, headers=headers, timeout=10)
        statuses[response.status_code] += 1
        checks = CHECKS[1:] if response.status_code in DOCUMENTED_5XX else CHECKS
        case.validate_response(response, checks=checks, headers=headers)

    run()
    return statuses


async def _try_all(databases: Databases, examples: int, part: int = 0, parts: int = 1) -> None:
    """Operations number `part`, `part + parts` … of the document."""
    async with http_stand(databases, gateway={"starts_per_minute": 1_000_000}) as stand:
        ann = stand.client()
        schema = schemathesis.openapi.from_dict(await ann.json("GET", "/schema"))
        seen: Counter[int] = Counter()
        for found in list(schema.get_all_operations())[part::parts]:
            operation: Any = found.ok()  # type: ignore[union-attr]
            statuses: Counter[int] = Counter()
            for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE):
                session = await ann.create(AGENT)
                turn = await ann.submit(session, "hello")
                real = {"session_ref": session, "turn_ref": turn["turn_id"]}
                for known in (real, {}):
                    url = stand.gateways[0]
                    statuses += await asyncio.to_thread(_send, operation, mode, url, known, examples)
            assert statuses.total() >= 2 * examples, operation.label
            seen |= statuses
            fine = any(200 <= status < 300 for status in statuses)
            assert fine != (operation.label in NEVER_FINE), (operation.label, statuses)
        if parts == 1:
            assert {200, 202, 204, 401, 404, 409, 422} <= set(seen)


async def test_no_answer_is_a_surprise(databases: Databases) -> None:
    """No 5xx but the documented 503 and 504; statuses, types, headers and bodies are as described."""
    await _try_all(databases, examples=3)


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("part", range(PARTS))
async def test_no_answer_is_a_surprise_counted(databases: Databases, part: int) -> None:
    """600 requests an operation: a minute for each on a quiet machine, and all of them in one test took longer than a
    test may."""
    await _try_all(databases, 150, part, PARTS)


def _references(node: Any) -> set[str]:
    if isinstance(node, dict):
        found = {node["$ref"]} if isinstance(node.get("$ref"), str) else set()
        return found.union(*map(_references, node.values()))
    return set().union(*map(_references, node)) if isinstance(node, list) else set()


async def test_the_document_is_whole(databases: Databases) -> None:
    """Every reference leads somewhere, every operation has a name and says what it refuses."""
    async with http_stand(databases) as stand:
        document = await stand.client(token="").json("GET", "/schema")
        assert document == await stand.client(token="").json("GET", "/schema/openapi.json")
        names = document["components"]["schemas"]
        assert _references(document) <= {f"#/components/schemas/{name}" for name in names}
        operations = [operation for path in document["paths"].values() for operation in path.values()]
        assert len({operation["operationId"] for operation in operations}) == len(operations)
        submit = document["paths"]["/v1/sessions/{session_ref}/turns"]["post"]
        assert set(submit["responses"]) == {"202", "401", "403", "404", "409", "413", "422", "429", "503"}
        assert names["SubmitTurn"]["additionalProperties"] is False
