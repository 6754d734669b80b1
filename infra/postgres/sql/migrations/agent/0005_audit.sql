-- `turnlog audit` reads as the projector role; it also compares kept replies and attachments.

DO $$
DECLARE
    projector text := current_setting('turnlog.role_projector');
BEGIN
    EXECUTE 'GRANT SELECT ON command_log, blobs, blob_chunks TO ' || quote_ident(projector);
END
$$;
