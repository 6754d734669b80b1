-- name: bound
SELECT set_config('transaction_timeout', $1::text, false);
