# faults WAYS: faults and changes of a device, by each way to the kernel.
run_faults() {
  step "a disk of the guest" host
  mkdir -p /mnt
  head -c 1000000 /dev/urandom >/tmp/content
  step "auto takes ublk, and says why" auto_ ublk "the first way"
  for way in $(echo "$1" | tr + ' '); do
    step "$way: a second volume of the depot is refused, and told where the first one is" second_
    step "$way: a killed daemon fails its device; detach cleans up, flushed files are there" killed_
    step "$way: grow; a snapshot stays as it was" grown_
    step "$way: memory of the process below 4 writers" memory_
    step "$way: detached, or cleaned up" clean_up_
  done
  step "a kernel without ublk" rmmod ublk_drv
  step "auto takes nbd where there is no ublk, and says why" auto_ nbd "ublk: this kernel has no ublk"
  mv /bin/nbd-client /tmp/nbd-client
  step "without nbd-client, nbd is refused by name" no_client_
  step "auto takes FUSE where there is no nbd-client, and says why" auto_ fuse "nbd-client (package nbd-client) is not installed"
  mv /tmp/nbd-client /bin/nbd-client
}
# Takes away what a step before has left. A depot that is still in use would be found by the next step.
clean_up_() {
  umount -l /mnt 2>/dev/null || true
  [ ! -e /host/depot ] || $onefold volume detach /host/depot || [ "$($onefold volume list | wc -l)" = 0 ]
  rm -rf /host/depot
}
# attach_ WAY [VOLUME]: sets $device and $process.
attach_() {
  $onefold --json volume attach "/host/depot${2:-}" --via "$1" >/tmp/attached || { cat /tmp/attached; return 1; }
  device=$(sed 's/.*"device":"\([^"]*\)".*/\1/' /tmp/attached)
  process=$(sed 's/.*"process":\([0-9]*\).*/\1/' /tmp/attached)
}
# A device of a new depot.
new_() { clean_up_; $onefold -q volume create /host/depot --size 256M; attach_ "$way"; }
has() { grep -qF "$1" "$2" || { cat "$2"; return 1; }; }
# ends CODE COMMAND …: what it says is in /tmp/err.
ends() {
  wanted=$1; shift; code=0
  "$@" >/tmp/err 2>&1 || code=$?
  [ "$code" = "$wanted" ] || { cat /tmp/err; echo "ended with $code in place of $wanted"; return 1; }
}
auto_() {
  clean_up_; $onefold -q volume create /host/depot --size 64M
  $onefold -v volume attach /host/depot >/tmp/out 2>&1
  $onefold volume list >/tmp/list; has /dev/ /tmp/list; has "$2" /tmp/out
  case $1 in fuse) has /dev/loop /tmp/out ;; *) has "/dev/$1" /tmp/out ;; esac
  $onefold volume detach /host/depot
}
no_client_() {
  clean_up_; $onefold -q volume create /host/depot --size 64M
  ends 16 $onefold volume attach /host/depot --via nbd; has "nbd-client (package nbd-client) is not installed" /tmp/err
}
second_() {
  new_; $onefold -q volume create /host/depot:other --size 64M
  ends 11 $onefold volume attach /host/depot:other --via "$way"; has "$device" /tmp/err; has "one volume at a time" /tmp/err
  $onefold volume detach /host/depot; attach_ "$way" :other
  [ "$(blockdev --getsize64 "$device")" = 67108864 ]
}
killed_() {
  new_; mkfs.ext4 -qF "$device"; mount "$device" /mnt
  cp /tmp/content /mnt/flushed; sync /mnt/flushed; sync /mnt
  kill -9 "$process"
  # The device fails at once, and nothing hangs: neither a sync of new data nor unmounting.
  head -c 3000000 /dev/urandom >/mnt/lost || true
  if timeout -s KILL 60 sync /mnt/lost 2>/dev/null; then echo "a write succeeded without its process"; return 1; fi
  timeout -s KILL 60 umount /mnt
  old=$device
  $onefold volume detach /host/depot >/tmp/err 2>&1 || { cat /tmp/err; return 1; }
  case $way in
  ublk) [ ! -e "$old" ]; [ ! -e "/dev/ublkc${old#/dev/ublkb}" ] ;;
  nbd) [ ! -e "/sys/block/${old#/dev/}/pid" ] ;;
  esac
  attach_ "$way"; [ "$device" = "$old" ] || { echo "$device after $old: a number is still taken"; return 1; }
  mount "$device" /mnt; cmp /tmp/content /mnt/flushed; umount /mnt; e2fsck -fn "$device"
}
grown_() {
  new_; cat /tmp/content >"$device"; sync
  $onefold -q volume snapshot /host/depot@before
  if $onefold -q volume grow /host/depot --size 512M >/tmp/err 2>&1; then
    [ "$(blockdev --getsize64 "$device")" = 536870912 ] || { blockdev --getsize64 "$device"; return 1; }
    echo "GROWN $way at once" >/dev/console
  else
    has "once it is detached and attached again" /tmp/err; $onefold volume detach /host/depot; attach_ "$way"
    echo "GROWN $way when attached again: $(cat /tmp/err)" >/dev/console
  fi
  dd if=/tmp/content of="$device" bs=1M seek=400 conv=notrunc 2>/dev/null
  head -c 1000000 /dev/zero >"$device"; sync; echo 3 >/proc/sys/vm/drop_caches
  dd if="$device" of=/tmp/grown bs=1M skip=400 count=1 2>/dev/null; truncate -s 1000000 /tmp/grown; cmp /tmp/grown /tmp/content
  head -c 1000000 "$device" >/tmp/zeros
  if cmp -s /tmp/zeros /tmp/content; then echo "zeros were not written"; return 1; fi
  $onefold volume detach /host/depot; attach_ "$way" @before
  head -c 1000000 "$device" >/tmp/before; cmp /tmp/before /tmp/content
}
# 4 writers at once leave requests to the kernel as fast as it takes them.
memory_() {
  new_; head -c 48000000 /dev/urandom >/tmp/much
  writers=
  for writer in 0 1 2 3; do dd if=/tmp/much of="$device" bs=1M seek=$((writer * 60)) conv=notrunc,fsync 2>/dev/null & writers="$writers $!"; done
  for writer in $writers; do wait "$writer"; done
  peak=$(sed -n 's/^VmHWM:[[:space:]]*\([0-9]*\) kB/\1/p' "/proc/$process/status")
  echo "MEMORY $way $peak" >/dev/console
  [ "$peak" -lt $((160 * 1024)) ] || { echo "$peak KiB"; return 1; }
  rm /tmp/much
}
