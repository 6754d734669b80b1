-- name: events
SELECT sequence, type, schema_version, turn_id::text AS turn_id, created_at, payload
FROM events
WHERE session_id = $1::text::uuid AND sequence > $2 AND sequence <= $3
ORDER BY sequence
LIMIT $4;

-- name: erase
SELECT erase_session(
    $1::text::uuid, $2::bigint, $3::bigint [], $4::json [], $5::json, $6::bytea [], $7::text []
);

-- name: stamp
SELECT stamp_restored() AS epoch;

-- name: others
SELECT count(*) AS others FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend';
