-- The event store: stream heads, events, what makes commands repeatable, who executes what.
-- Every table leads with session_id, so that a session is one place on disk and one unit to move.

CREATE TABLE store_meta (
    singleton boolean PRIMARY KEY DEFAULT true CHECK (singleton),
    epoch integer NOT NULL DEFAULT 1
);
COMMENT ON TABLE store_meta IS 'epoch: raised by the restore procedure; a client that sees another epoch reloads';
INSERT INTO store_meta DEFAULT VALUES;

CREATE TABLE sessions (
    session_id uuid PRIMARY KEY,
    agent_id text NOT NULL,
    component text NOT NULL CHECK (component IN ('agent', 'team', 'workflow')),
    last_sequence bigint NOT NULL,
    head_hash bytea NOT NULL,
    active_turn_id uuid,
    tip_turn_id uuid,
    fence bigint NOT NULL,
    queue_state text NOT NULL CHECK (queue_state IN ('open', 'paused')),
    next_enqueue_sequence bigint NOT NULL,
    queued_count integer NOT NULL,
    closing boolean NOT NULL,
    turns_generation integer NOT NULL,
    messages_generation integer NOT NULL,
    created_at timestamptz NOT NULL,
    last_event_at timestamptz NOT NULL,
    closed_at timestamptz
) WITH (fillfactor = 70);
COMMENT ON TABLE sessions IS 'Stream heads. No index but the key, so that every update of a head stays on its page (HOT)';

CREATE TABLE events (
    session_id uuid NOT NULL,
    sequence bigint NOT NULL,
    event_id uuid NOT NULL,
    type text NOT NULL,
    schema_version integer NOT NULL,
    turn_id uuid,
    payload json NOT NULL,
    private bytea,
    salt bytea,
    payload_digest bytea NOT NULL,
    private_digest bytea,
    metadata json NOT NULL,
    created_at timestamptz NOT NULL,
    transaction_id xid8 NOT NULL DEFAULT pg_current_xact_id(),
    position bigint NOT NULL GENERATED ALWAYS AS IDENTITY,
    hash bytea NOT NULL,
    PRIMARY KEY (session_id, sequence)
);
COMMENT ON COLUMN events.payload IS 'json, not jsonb: the exact text is what was hashed and what viewers get';
COMMENT ON COLUMN events.private IS 'Never published, never returned by a replay';
CREATE INDEX events_feed ON events (transaction_id, position);

CREATE FUNCTION events_are_append_only() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'events are append-only: % refused', TG_OP USING ERRCODE = 'restrict_violation';
END
$$;
CREATE TRIGGER events_append_only BEFORE UPDATE OR DELETE ON events
FOR EACH ROW EXECUTE FUNCTION events_are_append_only();
CREATE TRIGGER events_never_truncated BEFORE TRUNCATE ON events
FOR EACH STATEMENT EXECUTE FUNCTION events_are_append_only();

CREATE TABLE command_log (
    session_id uuid NOT NULL,
    idempotency_key text NOT NULL,
    fingerprint bytea NOT NULL,
    fence bigint,
    ordinal bigint,
    reply bytea,
    PRIMARY KEY (session_id, idempotency_key)
) WITH (fillfactor = 80);
COMMENT ON TABLE command_log IS
'First replies. `key:…` is a client''s key, `turn:…` the last executor command of that turn (fence, ordinal)';

CREATE TABLE workers (
    worker_id uuid PRIMARY KEY,
    started_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    lease_seconds double precision NOT NULL,
    expires_at timestamptz NOT NULL
) WITH (fillfactor = 50);
COMMENT ON TABLE workers IS 'One row per process start, renewed by its heartbeat';

CREATE TABLE claims (
    session_id uuid PRIMARY KEY,
    turn_id uuid NOT NULL,
    fence bigint NOT NULL,
    worker_id uuid NOT NULL,
    last_frame_at timestamptz NOT NULL,
    seen_at timestamptz NOT NULL DEFAULT clock_timestamp()
) WITH (fillfactor = 70);
COMMENT ON COLUMN claims.seen_at IS
'When a heartbeat last named the claim. It is live while its worker has not expired and has named it within a lease: a claim
whose reply was lost, which nobody executes, ends by itself';

CREATE TABLE agents (
    agent_id text PRIMARY KEY,
    name text NOT NULL,
    component text NOT NULL CHECK (component IN ('agent', 'team', 'workflow')),
    announced_at timestamptz NOT NULL
);
COMMENT ON TABLE agents IS 'What workers said they can execute';

CREATE TABLE blobs (
    sha256 bytea PRIMARY KEY CHECK (octet_length(sha256) = 32),
    media_type text NOT NULL,
    bytes bigint NOT NULL,
    created_at timestamptz NOT NULL
);
CREATE TABLE blob_chunks (
    sha256 bytea NOT NULL REFERENCES blobs ON DELETE CASCADE,
    chunk integer NOT NULL,
    content bytea NOT NULL,
    PRIMARY KEY (sha256, chunk)
);
