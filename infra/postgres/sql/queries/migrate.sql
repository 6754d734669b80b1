-- Utility statements take no parameters: these make them, quoted by the server itself.

-- name: create_role
SELECT format('CREATE ROLE %I', $1::text)
WHERE NOT EXISTS (SELECT FROM pg_roles WHERE rolname = $1::text);

-- name: let_log_in
SELECT format('ALTER ROLE %I LOGIN PASSWORD %L', $1::text, $2::text);

-- name: own_by_us
SELECT format('GRANT %I TO CURRENT_USER', $1::text)
WHERE NOT (SELECT rolsuper FROM pg_roles WHERE rolname = current_user);

-- name: create_database
SELECT format('CREATE DATABASE %I OWNER %I ENCODING ''UTF8'' TEMPLATE template0 LOCALE ''C.UTF-8''', $1::text, $2::text)
WHERE NOT EXISTS (SELECT FROM pg_database WHERE datname = $1::text);

-- name: close_database
SELECT format('REVOKE ALL ON DATABASE %I FROM PUBLIC', $1::text);

-- name: open_database
SELECT format('GRANT CONNECT ON DATABASE %I TO %I', $1::text, $2::text);

-- name: open_schema
SELECT format('GRANT USAGE ON SCHEMA public TO %I', $1::text);

-- name: become_owner
SELECT format('SET ROLE %I', $1::text);

-- name: let_create
SELECT format('GRANT CREATE, USAGE ON SCHEMA public TO %I', $1::text)
WHERE NOT has_schema_privilege($1::text, 'public', 'CREATE');

-- name: let_make_schemas
-- A database that somebody else has made and owns.
SELECT format('GRANT CREATE, TEMPORARY ON DATABASE %I TO %I', $1::text, $2::text)
WHERE NOT has_database_privilege($2::text, $1::text, 'CREATE');

-- name: lock
SELECT pg_advisory_lock(7310868735926742016);

-- name: tell_role
SELECT set_config('turnlog.role_' || $1::text, $2::text, false);

-- name: create_list
CREATE TABLE IF NOT EXISTS schema_migrations (
    number integer PRIMARY KEY,
    name text NOT NULL,
    checksum bytea NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT now()
);

-- name: applied
SELECT number, name, checksum FROM schema_migrations ORDER BY number;

-- name: note
INSERT INTO schema_migrations (number, name, checksum) VALUES ($1, $2, $3);
