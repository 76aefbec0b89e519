-- All backends, auxiliary processes included. The query travels as bytes because pg_stat_activity shows the texts
-- of other databases in *their* encoding: cutting or decoding them as text can fail.
-- now_ms and configured_ms stand in our own row only, so that the row of an idle backend equals the one of the look before.
-- A session that this role may not look into has no type; one with user and database counts as a client's.
-- What moves with every statement is cut to 10 ms: nobody reads finer ages, and a recording is a quarter smaller.
-- textsend() converts to the client's encoding and copies; 2000 bytes hold 500 characters in any encoding. Where our
-- session has the server convert nothing, a text comes in the encoding of its own database.
SELECT s.pid,
       coalesce(s.backend_type, CASE WHEN s.datid IS NOT NULL AND s.usesysid IS NOT NULL
                                     THEN 'client backend' ELSE '' END) AS backend_type,
       (date_part('epoch', s.backend_start) * 1000)::bigint AS backend_start_ms,
       s.leader_pid,
       d.datname::text AS datname,
       CASE WHEN s.usesysid IS NOT NULL THEN pg_get_userbyid(s.usesysid)::text END AS usename,
       s.application_name,
       CASE WHEN s.client_port = -1 THEN 'local' ELSE host(s.client_addr) END AS client,
       s.state,
       s.wait_event_type,
       s.wait_event,
       (date_part('epoch', s.xact_start) * 100)::bigint * 10 AS xact_start_ms,
       (date_part('epoch', s.query_start) * 100)::bigint * 10 AS query_start_ms,
       (date_part('epoch', s.state_change) * 100)::bigint * 10 AS state_change_ms,
       age(s.backend_xmin) AS backend_xmin_age,
       s.query_id,
       substring(textsend(s.query) FOR 2000) AS query,
       CASE WHEN pg_client_encoding() IN ('SQL_ASCII', getdatabaseencoding()) THEN pg_encoding_to_char(d.encoding)::text
            ELSE 'UTF8' END AS query_encoding,
       CASE WHEN s.pid = pg_backend_pid() THEN (date_part('epoch', clock_timestamp()) * 1000)::bigint END AS now_ms,
       CASE WHEN s.pid = pg_backend_pid() THEN (date_part('epoch', pg_conf_load_time()) * 1000)::bigint END
           AS configured_ms
  FROM pg_stat_get_activity(NULL) s
  LEFT JOIN pg_database d ON d.oid = s.datid
