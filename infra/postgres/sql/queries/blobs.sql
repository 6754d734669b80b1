-- Attachments by the SHA-256 of their content.

-- name: keep
SELECT keep_blob($1::text, $2::bytea []) AS sha256;

-- name: known
SELECT known_blobs($1::bytea []) AS sha256;

-- name: size
SELECT bytes FROM blobs WHERE sha256 = $1::bytea;

-- name: chunks
SELECT content FROM blob_chunks WHERE sha256 = $1::bytea ORDER BY chunk;

-- name: collect
SELECT collect_blobs($1::float8, $2::integer) AS gone;
