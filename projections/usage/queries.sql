-- name: sessions
INSERT INTO usage_sessions (session_id, agent_id, user_id)
SELECT n.session_id, n.agent_id, n.user_id
FROM json_to_recordset($1::json) AS n (session_id uuid, agent_id text, user_id text)
ON CONFLICT (session_id) DO NOTHING;

-- name: add
-- One row a session, day and model; what came before a session's creation was known (a retried event) has no owner.
INSERT INTO usage_tokens AS u (
    session_id, day, model, agent_id, user_id, requests, input_tokens, output_tokens, cache_read_tokens,
    cache_write_tokens
)
SELECT
    n.session_id, n.day, n.model, coalesce(s.agent_id, ''), coalesce(s.user_id, ''), n.requests, n.input_tokens,
    n.output_tokens, n.cache_read_tokens, n.cache_write_tokens
FROM
    json_to_recordset($1::json) AS n (
        session_id uuid, day date, model text, requests bigint, input_tokens bigint, output_tokens bigint,
        cache_read_tokens bigint, cache_write_tokens bigint
    )
LEFT JOIN usage_sessions AS s ON s.session_id = n.session_id
ON CONFLICT (session_id, day, model) DO UPDATE SET
    requests = u.requests + excluded.requests,
    input_tokens = u.input_tokens + excluded.input_tokens,
    output_tokens = u.output_tokens + excluded.output_tokens,
    cache_read_tokens = u.cache_read_tokens + excluded.cache_read_tokens,
    cache_write_tokens = u.cache_write_tokens + excluded.cache_write_tokens;
