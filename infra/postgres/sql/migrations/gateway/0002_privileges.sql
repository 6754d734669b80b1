-- Least privilege. The role's name depends on the namespace; `turnlog migrate` passes it as a setting.

DO $$
BEGIN
    EXECUTE 'REVOKE ALL ON ALL TABLES IN SCHEMA public FROM PUBLIC';
    EXECUTE 'GRANT SELECT, INSERT, UPDATE ON registrations TO ' || quote_ident(current_setting('turnlog.role_gateway'));
END
$$;
