-- name: made
-- The projector makes the table when it runs for the first time.
SELECT to_regclass('feed.search_texts') IS NOT NULL AS made;

-- name: find
SELECT
    t.session_id::text AS session_id, t.turn_id::text AS turn_id, t.role, t.sequence, t.content, t.created_at
FROM feed.search_texts AS t
WHERE
    t.terms @> $2::text []
    AND t.session_id = any($1::text []::uuid [])
    AND NOT EXISTS (SELECT FROM unnest($3::text []) AS r (run) WHERE position(r.run IN t.folded) = 0)
    AND (
        $5::timestamptz IS NULL
        OR (t.created_at, t.session_id, t.sequence) < ($5::timestamptz, $6::text::uuid, $7::bigint)
    )
ORDER BY t.created_at DESC, t.session_id DESC, t.sequence DESC
LIMIT $4;
