-- What ages of this look are counted from. The ids are read as the age of a very old one.
SELECT (date_part('epoch', clock_timestamp()) * 1000)::bigint AS now_ms,
       ((age('3'::xid)::bigint + 3) & 4294967295) AS next_xid,
       ((mxid_age('1'::xid)::bigint + 1) & 4294967295) AS next_multixact
