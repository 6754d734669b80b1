-- name: load
SELECT
    c.transaction_id::text AS transaction_id,
    c.position
FROM feed_checkpoints AS c
WHERE c.name = $1;

-- name: begin
INSERT INTO feed_checkpoints (name, transaction_id, position)
VALUES ($1, $2::text::xid8, $3)
ON CONFLICT (name) DO NOTHING
RETURNING name;

-- name: advance
UPDATE feed_checkpoints
SET transaction_id = $4::text::xid8, position = $5, updated_at = clock_timestamp()
WHERE name = $1 AND transaction_id = $2::text::xid8 AND position = $3
RETURNING name;
