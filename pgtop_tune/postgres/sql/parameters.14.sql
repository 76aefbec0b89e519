-- Parameters this role may see; those it may not are not in pg_settings at all. The manual's words are half the bytes
-- and never change: whoever shows a parameter asks for them. A start takes no size of WAL below two segments, whatever
-- min_val says (xlog.c, ReadControlFile). A restart gives a server its command line again: no line of a file waits for
-- it, though the server says so (guc.c, set_config_option).
SELECT name,
       setting,
       current_setting(name) AS shown,
       coalesce(unit, '') AS unit,
       '' AS category,
       '' AS short_desc,
       context,
       vartype,
       source,
       coalesce(CASE WHEN name IN ('min_wal_size', 'max_wal_size')
                     THEN (2 * (pg_size_bytes(current_setting('wal_segment_size')) >> 20))::text
                     ELSE min_val END, '') AS min_val,
       coalesce(max_val, '') AS max_val,
       coalesce(enumvals, '{}') AS enumvals,
       coalesce(boot_val, '') AS boot_val,
       coalesce(reset_val, '') AS reset_val,
       coalesce(sourcefile || ':' || sourceline, '') AS sourcefile,
       pending_restart AND source NOT IN ('command line', 'environment variable') AS pending_restart
  FROM pg_settings
