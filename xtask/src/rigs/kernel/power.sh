# A guest that is saved once it has booted, and restored before each power cut. It has touched no disk then, and what it
# does afterwards the host tells it by a line of the console: a restored guest knows neither the time nor anything random.
# /dev/vda holds ext4 with the depot, /dev/vdb is random bytes of this round alone.
run_power() {
  mkdir -p /host /mnt
  echo 3 >/proc/sys/vm/drop_caches; blockdev --flushbufs /dev/vda; blockdev --flushbufs /dev/vdb
  word=
  while [ "$word" != GO ]; do
    echo "WAITING for a round"
    read -r -t 1 word seed round way kind || true
  done
  step "attach $way, mount $kind" power_mount_
  mkdir -p /mnt/files /mnt/bulk
  writer_ a "$seed" & writer_ b $((seed * 3 + 1)) & bulk_ &
  wait
  echo "STEP FAIL the writers of round $round ended"
}
power_mount_() {
  mount -t ext4 /dev/vda /host
  $onefold volume attach /host/depot --via "$way" >/tmp/device
  mount -t "$kind" -o discard "$(head -n 1 /tmp/device)" /mnt
}
# writer_ NAME SEED: makes, replaces and removes files. The host is told of each after it is synced, with the digest of
# its content, and of what replaces or removes a synced one before that, too.
writer_() {
  name=$1 random=$2 n=0
  while :; do
    n=$((n + 1)); draw_; size=$((drawn * 7 % 200000 + 1)); draw_
    # One in four is the same as others before, in part or as a whole.
    case $((drawn % 4)) in 0) place=$((16 + drawn % 5)) ;; *) place=$((16 + drawn % 8000)) ;; esac
    dd if=/dev/vdb bs=4096 skip="$place" count=50 2>/dev/null | head -c "$size" >"/tmp/$name"
    digest=$(sha256sum "/tmp/$name" | cut -c1-64)
    draw_
    case $((drawn % 8)) in
    0 | 1) replace_ "$round-$name-slot$((drawn / 8 % 4))" ;;
    2) [ "$n" -lt 6 ] || remove_ "$round-$name-$((n - 5))" ;;
    *) write_ "$round-$name-$n" ;;
    esac || return
  done
}
draw_() { random=$(((random * 1103515245 + 12345) & 0x7fffffff)); drawn=$((random >> 12)); }
write_() {
  cp "/tmp/$name" "/mnt/files/$1" && sync "/mnt/files/$1" && sync /mnt/files && echo "SYNCED $1 $digest"
}
# Tells the host, and waits until the line has left the guest: what is done then may be on the disk before it.
intend_() { echo "INTENDED $1 $2"; stty opost </dev/console; }
replace_() {
  intend_ "$1" "$digest"
  cp "/tmp/$name" "/mnt/files/.$name" && sync "/mnt/files/.$name" && mv "/mnt/files/.$name" "/mnt/files/$1" &&
    sync /mnt/files && echo "SYNCED $1 $digest"
}
remove_() {
  [ -e "/mnt/files/$1" ] || return 0
  intend_ "$1" -
  rm "/mnt/files/$1" && sync /mnt/files && echo "SYNCED $1 -"
}
# Writes that nobody syncs, over and over: much is under way when the power goes.
bulk_() {
  k=0
  while dd if=/dev/vdb of="/mnt/bulk/$((k % 12))" bs=64k skip=$((k % 120 * 4 + 1)) count=12 2>/dev/null; do
    k=$((k + 1)); sleep 0.2
  done
}
