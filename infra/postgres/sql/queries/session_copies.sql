-- name: note
INSERT INTO session_copies (session_id, source_session_id, upto) VALUES ($1, $2, $3);

-- name: find
SELECT source_session_id, upto FROM session_copies WHERE session_id = $1;
