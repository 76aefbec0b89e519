# Tells which pgbench there are, and where a run's directory may be made.
#
# Arguments: a word that begins our lines on standard output, and a binary or its directory, or nothing.
# Standard output: "MARK base DIRECTORY", "MARK cpus NUMBER" where that is known, and for each pgbench
# "MARK pgbench PATH" followed by what --version prints,
# and "MARK without-tls PATH" where its libpq refuses TLS. No server is asked: there is none in /dev/null.
mark=$1
asked_for=$2
base=${TMPDIR:-/tmp}
[ -d /dev/shm ] && [ -w /dev/shm ] && base=/dev/shm
printf '%s base %s\n' "$mark" "$base"
printf '%s cpus %s\n' "$mark" "$(nproc 2>/dev/null)"
LC_ALL=C
export LC_ALL
if [ -n "$asked_for" ]; then
    set -- "$asked_for" "$asked_for/pgbench"
else
    set -- /usr/lib/postgresql/*/bin/pgbench /usr/pgsql-*/bin/pgbench "$(command -v pgbench)"
fi
for path; do
    if [ -f "$path" ] && [ -x "$path" ]; then
        printf '%s pgbench %s\n' "$mark" "$path"
        "$path" --version 2>&1
        case $(PGSSLMODE=require "$path" -n -t 1 -h /dev/null -U nobody postgres 2>&1) in
            *"SSL support is not compiled in"*) printf '%s without-tls %s\n' "$mark" "$path" ;;
        esac
    fi
done
exit 0
