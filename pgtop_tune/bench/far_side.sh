# Runs one program for as long as somebody holds the other end of standard input, and sends its log along.
#
# Arguments: a word that begins our lines on standard output, a directory to be made, the host of the server ("" where
# there is no one network to it), then the program and its words.
# Standard input, before the start: "clock" (answered with the time), "file NAME BYTES" followed by the bytes, "go";
# after it: names of signals, and "beat" now and then. Standard output: "MARK log NAME BYTES", "MARK report - BYTES",
# "MARK cpu - BYTES", "MARK net - BYTES",
# followed by the bytes. POSIX sh, with head -c; fallocate gives sent log back to the disk where it is there.
#
# Variables of that account which lead to a server or hold a password are about another one than ours.
unset PGHOST PGHOSTADDR PGPORT PGSERVICE PGPASSWORD PGTARGETSESSIONATTRS PGLOADBALANCEHOSTS
mark=$1
directory=$2
host=$3
shift 3
umask 077
exec 3<&0
finish() {
    # A second signal must not end this half-way.
    trap '' HUP INT TERM PIPE
    [ ! -f pid ] || [ -f ended ] || kill -KILL "$(cat pid)"
    cd / && rm -rf -- "$directory"
}
mkdir -- "$directory" && cd -- "$directory" || exit 73
trap finish EXIT
trap 'exit 1' HUP INT TERM PIPE

device=
for address in ${host:+$(getent ahosts "$host" 2>/dev/null)}; do
    route=$(ip -o route get "$address" 2>/dev/null)
    case $route in *' dev '*) device=${route#* dev } && device=${device%% *} ;; esac
    break
done

word=
while read -r word name bytes <&3; do
    case $word in
        clock) printf '%s clock %s\n' "$mark" "$(date +%s.%N)" ;;
        file) dd bs=1 count="$bytes" of="$name" <&3 2>/dev/null || exit 73 ;;
        go) break ;;
    esac
done
[ "$word" = go ] || exit 1

# Writes the seconds since the boot, and the line of that interface in /proc/net/dev.
counters() {
    read -r uptime _ </proc/uptime
    while read -r line; do
        case $line in "$device":*) printf '%s %s\n' "$uptime" "$line" ;; esac
    done </proc/net/dev
}

(
    # A word about a killed program, on a connection that is gone, must not end this before it has written its line.
    trap '' PIPE
    counters >net 2>/dev/null
    sh -c 'echo $$ >pid && exec "$@"' sh "$@" >report 3<&-
    echo $? >ended.part
    # CPU time of this shell, and in the second line of pgbench.
    times >cpu
    { counters && cat "/sys/class/net/$device/speed"; } >>net 2>/dev/null
    mv ended.part ended
) &

(
    while read -r word <&3; do
        case $word in
            beat) : >beat ;;
            *) kill "-$word" "$(cat pid)" ;;
        esac
    done
    for word in TERM KILL; do
        [ -f ended ] || kill "-$word" "$(cat pid)"
        sleep 1
    done
    # $$ is the shell that started this one; it clears up, unless it was killed.
    while kill -0 $$; do
        sleep 1
    done
    rm -rf -- "$directory"
) >/dev/null 2>&1 &
listener=$!

# A connection that was cut without a word holds standard input open, and writing to it blocks, for a long time.
(
    silent_s=0
    until [ -f ended ] || [ "$silent_s" -ge 30 ]; do
        sleep 1
        silent_s=$((silent_s + 1))
        [ ! -f beat ] || { rm -f beat && silent_s=0; }
        kill -0 $$ || exit
    done
    if [ ! -f ended ]; then
        pid=$(cat pid)
        kill -TERM "$pid"
        sleep 1
        kill -KILL "$pid"
        rm -rf -- "$directory"
    fi
) >/dev/null 2>&1 &
watchdog=$!

send() {
    printf '%s %s %s %s\n' "$mark" "$1" "$2" "$4"
    tail -c "+$(($3 + 1))" "$2" | head -c "$4"
}

send_log() {
    for file in transactions.*; do
        [ -f "$file" ] || continue
        thread=${file##*.}
        eval "sent=\${sent_$thread:-0}"
        size=$(($(wc -c <"$file")))
        [ "$size" -gt "$sent" ] || continue
        send log "$file" "$sent" $((size - sent))
        fallocate -p -o 0 -l "$size" "$file" 2>/dev/null
        eval "sent_$thread=$size"
    done
}

until [ -f ended ] || [ ! -d "$directory" ]; do
    send_log
    sleep 1
done
[ -f ended ] || exit 1
send_log
send report report 0 $(($(wc -c <report)))
send cpu cpu 0 $(($(wc -c <cpu)))
send net net 0 $(($(wc -c <net)))
kill "$listener" "$watchdog" 2>/dev/null
exit "$(cat ended)"
