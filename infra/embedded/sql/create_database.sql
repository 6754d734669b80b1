-- The statement that creates database $1 owned by $2, or NULL where it exists.
SELECT format('CREATE DATABASE %I OWNER %I', $1::text, $2::text)
WHERE NOT EXISTS (SELECT FROM pg_database WHERE datname = $1::text)
