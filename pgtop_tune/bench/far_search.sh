# Tells which pgbench there are, and where a run's directory may be made.
#
# Arguments: a word that begins our lines on standard output, and a binary or its directory, or nothing.
# Standard output: "MARK base DIRECTORY", and for each pgbench "MARK pgbench PATH" followed by what --version prints.
mark=$1
asked_for=$2
base=${TMPDIR:-/tmp}
[ -d /dev/shm ] && [ -w /dev/shm ] && base=/dev/shm
printf '%s base %s\n' "$mark" "$base"
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
    fi
done
exit 0
