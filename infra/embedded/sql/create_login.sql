-- The statement that makes $1 a role that may log in with password $2 (or gives an existing role that password).
-- Utility statements take no parameters, so it is quoted here by the server itself and then executed as it is.
SELECT format(
    CASE WHEN EXISTS (SELECT FROM pg_roles WHERE rolname = $1)
        THEN 'ALTER ROLE %I LOGIN PASSWORD %L'
        ELSE 'CREATE ROLE %I LOGIN PASSWORD %L'
    END, $1::text, $2::text)
