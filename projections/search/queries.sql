-- name: add
INSERT INTO search_texts (session_id, sequence, turn_id, item_id, role, created_at, content, folded, terms)
SELECT
    n.session_id, n.sequence, n.turn_id, n.item_id, n.role,
    timestamptz 'epoch' + n.created_at * interval '1 microsecond', n.content, n.folded, n.terms
FROM
    json_to_recordset($1::json) AS n (
        session_id uuid, sequence bigint, turn_id uuid, item_id text, role text, created_at bigint, content text,
        folded text, terms text []
    )
ON CONFLICT (session_id, sequence) DO NOTHING;

-- name: remove_items
DELETE FROM search_texts
USING unnest($1::text[], $2::text[], $3::text[]) AS gone (session_id, turn_id, item_id)
WHERE
    search_texts.session_id = gone.session_id::uuid
    AND search_texts.turn_id = gone.turn_id::uuid
    AND search_texts.item_id = gone.item_id;

-- name: remove_turns
DELETE FROM search_texts
USING unnest($1::text[], $2::text[]) AS gone (session_id, turn_id)
WHERE search_texts.session_id = gone.session_id::uuid AND search_texts.turn_id = gone.turn_id::uuid;

-- name: erase
DELETE FROM search_texts WHERE session_id = $1::uuid;
