-- Feed projections: who runs them, how far they are, and their tables.

-- name: slots
-- Every slot with how far it lies behind: events are counted up to a bound. What a transaction that is still open may hide
-- counts as well: it is not applied yet.
SELECT
    p.name, p.slot, p.version, p.tables, p.transaction_id::text AS transaction_id, p.position, p.runner,
    coalesce(p.expires_at > clock_timestamp(), false) AS running, behind.events, behind.oldest,
    (SELECT count(*) FROM public.parked_events AS e WHERE e.name = p.name) AS parked
FROM public.feed_projections AS p
CROSS JOIN LATERAL (
    SELECT
        count(*) AS events,
        coalesce(extract(EPOCH FROM clock_timestamp() - min(c.created_at)), 0)::float8 AS oldest
    FROM (
        SELECT e.created_at FROM public.events AS e
        WHERE (e.transaction_id, e.position) > (p.transaction_id, p.position)
        LIMIT $1
    ) AS c
) AS behind
ORDER BY p.name, p.slot;

-- name: slot
SELECT version, tables, transaction_id::text AS transaction_id, position, fence
FROM public.feed_projections
WHERE name = $1 AND slot = $2;

-- name: lock_tables
-- Two processes must not make or move the tables of one projection at the same time.
SELECT pg_advisory_xact_lock(hashtext('turnlog feed projection ' || $1::text));

-- name: place
-- Statements of projections name no schema. Until the end of the transaction.
SELECT set_config('search_path', $1::text || ', public', true);

-- name: open_slot
INSERT INTO public.feed_projections (name, slot, version, tables) VALUES ($1, $2, $3, $4::text []);

-- name: grant_reads
-- Whoever may use the schema `feed` may read what will be served there.
SELECT format('GRANT SELECT ON TABLE %I.%I TO %I', $1::text, t.name, r.rolname) AS made
FROM unnest($2::text []) AS t (name)
CROSS JOIN pg_namespace AS n
CROSS JOIN LATERAL aclexplode(n.nspacl) AS a
INNER JOIN pg_roles AS r ON r.oid = a.grantee
WHERE n.nspname = 'feed' AND a.privilege_type = 'USAGE' AND r.rolname <> current_user AND a.grantee <> n.nspowner;

-- name: claim
UPDATE public.feed_projections
SET fence = fence + 1, runner = $3, expires_at = clock_timestamp() + make_interval(secs => $4)
WHERE name = $1 AND slot = $2 AND ($5 OR runner IS NULL OR expires_at < clock_timestamp())
RETURNING version, tables, transaction_id::text AS transaction_id, position, fence;

-- name: renew
UPDATE public.feed_projections
SET expires_at = clock_timestamp() + make_interval(secs => $4)
WHERE name = $1 AND slot = $2 AND fence = $3
RETURNING name;

-- name: release
UPDATE public.feed_projections SET runner = NULL, expires_at = NULL
WHERE name = $1 AND slot = $2 AND fence = $3
RETURNING name;

-- name: advance
-- First in the step's transaction: whoever has lost its claim, or whose place was moved, writes nothing.
UPDATE public.feed_projections
SET
    transaction_id = $6::text::xid8,
    position = $7,
    updated_at = clock_timestamp(),
    expires_at = clock_timestamp() + make_interval(secs => $8)
WHERE name = $1 AND slot = $2 AND fence = $3 AND transaction_id = $4::text::xid8 AND position = $5
RETURNING name;

-- name: park
INSERT INTO public.parked_events AS p (name, session_id, sequence, reason) VALUES ($1, $2::text::uuid, $3, $4)
ON CONFLICT (name, session_id, sequence) DO UPDATE SET
    reason = excluded.reason, attempts = p.attempts + 1, parked_at = clock_timestamp();

-- name: parked
SELECT name, session_id::text AS session_id, sequence, reason, attempts, parked_at
FROM public.parked_events
WHERE name = coalesce($1, name)
ORDER BY name, session_id, sequence;

-- name: unpark
DELETE FROM public.parked_events
WHERE name = $1 AND session_id = $2::text::uuid AND sequence = $3
RETURNING name;

-- name: clear_parked
DELETE FROM public.parked_events WHERE name = $1;

-- name: forget_reasons
-- A reason may quote what could not be stored; the type of the error says nothing of it.
UPDATE public.parked_events SET reason = split_part(reason, ':', 1) WHERE name = $1 AND session_id = $2::text::uuid;

-- name: drop_tables
SELECT format('DROP TABLE IF EXISTS %I.%I CASCADE', $1::text, t.name) AS made
FROM unnest($2::text []) AS t (name);

-- name: drop_slot
DELETE FROM public.feed_projections WHERE name = $1 AND slot = $2;

-- name: move_tables
SELECT format('ALTER TABLE %I.%I SET SCHEMA %I', $1::text, t.name, $3::text) AS made
FROM unnest($2::text []) AS t (name);

-- name: rename_slot
UPDATE public.feed_projections
SET slot = $3, fence = fence + 1, runner = NULL, expires_at = NULL
WHERE name = $1 AND slot = $2;

-- name: may_take_long
-- Until the end of the transaction.
SELECT set_config('statement_timeout', $1::text, true);

-- name: difference
-- Statement that tells rows which only one of two tables has, with the session where the row names one.
SELECT format(
    'WITH a AS (SELECT t::text AS row, to_jsonb(t) ->> ''session_id'' AS session_id FROM %1$I.%2$I AS t),'
    ' b AS (SELECT t::text AS row, to_jsonb(t) ->> ''session_id'' AS session_id FROM %3$I.%2$I AS t),'
    ' d AS ((TABLE a EXCEPT ALL TABLE b) UNION ALL (TABLE b EXCEPT ALL TABLE a))'
    ' SELECT count(*) AS rows, (array_agg(DISTINCT session_id))[1:5] AS sessions FROM d',
    $1::text, $2::text, $3::text
) AS made;

-- name: event_count
SELECT count(*) AS events FROM public.events;

-- name: events_after
SELECT count(*) AS events FROM public.events AS e WHERE (e.transaction_id, e.position) > ($1::text::xid8, $2::bigint);
