# transports WAYS KINDS: file systems on a depot that is attached by each way to the kernel.
run_transports() {
  step "a disk of the guest" host
  mkdir -p /tree /mnt; tar xf /tree.tar -C /tree
  for way in $(echo "$1" | tr + ' '); do
    for kind in $(echo "$2" | tr + ' '); do file_system "$way" "$kind"; done
  done
}
file_system() {
  way=$1 kind=$2
  step "$way, $kind: create, attach, mkfs, mount" begin_
  [ -e /tmp/device ] || return 0
  device=$(cat /tmp/device); queue=/sys/block/${device#/dev/}/queue
  step "$way, $kind: a tree twice, compared after the page cache was dropped" twice_
  step "$way, $kind: rm, fstrim, unmount, fsck" end_
  step "$way, $kind: counted" count_
  step "$way, $kind: detach, attach, the tree is there, check" again_
  step "$way, $kind: cleaned up" leave_
}
begin_() {
  $onefold -q volume create /host/depot --size 512M
  $onefold volume attach /host/depot --via "$way" >/tmp/attached
  head -n 1 /tmp/attached >/tmp/device
  make "$kind" "$(cat /tmp/device)"; mount -t "$kind" -o discard "$(cat /tmp/device)" /mnt
}
twice_() {
  cp -a /tree /mnt/one; sync; cp -a /tree /mnt/two; sync
  echo 3 >/proc/sys/vm/drop_caches
  diff -r /tree /mnt/one; diff -r /tree /mnt/two
}
end_() { rm -r /mnt/two; sync; fstrim -v /mnt; umount /mnt; check "$kind" "$device"; }
count_() {
  stats=$($onefold volume stats /host/depot --json)
  echo "TABLE {\"way\":\"$way\",\"file_system\":\"$kind\",\"device\":\"$device\",\"fua\":$(cat "$queue/fua"),\"discard_max\":$(cat "$queue/discard_max_bytes"),\"zeroes_max\":$(cat "$queue/write_zeroes_max_bytes"),\"stats\":$stats}" >/dev/console
  # Of the three ways, only ublk tells which writes are metadata.
  metadata=$(echo "$stats" | sed 's/.*"nodedup_writes":{\([^}]*\)}.*/\1/; s/.*"metadata":\([0-9]*\).*/\1/')
  case $way in
  ublk) [ "$metadata" -gt 0 ] || { echo "no write was seen as metadata: $stats"; return 1; } ;;
  esac
}
# Where a step before has failed, a mount and a device are left.
leave_() {
  umount -l /mnt 2>/dev/null || true
  $onefold volume detach /host/depot 2>/dev/null || [ "$($onefold volume list | wc -l)" = 0 ]
  rm -rf /host/depot /tmp/device
}
again_() {
  $onefold volume detach /host/depot; [ ! -e "/sys/block/${device#/dev/}/pid" ]
  $onefold volume attach /host/depot --via "$way" >/tmp/attached
  mount -t "$kind" "$(head -n 1 /tmp/attached)" /mnt; diff -r /tree /mnt/one; umount /mnt
  $onefold volume detach /host/depot; $onefold volume check /host/depot --read-data
}
