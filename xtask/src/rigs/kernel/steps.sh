# Steps of the guest: each is a function that must succeed, and prints one line for the host. A step runs in the
# background. There the shell ends it at the first command that fails, even where `step` stands in a condition, and a
# watch sees that it does not end.
onefold=/bin/onefold
# Longest time of one step.
step_seconds=300
step() {
  name=$1; shift; begun=$(uptime_)
  (set -eu -o pipefail; "$@") >/tmp/said 2>&1 &
  running=$!
  watch_ &
  watch=$!
  wait "$running"; code=$?
  kill "$watch" 2>/dev/null; wait "$watch" 2>/dev/null
  if [ "$code" = 0 ]; then
    echo "STEP ok $(($(uptime_) - begun)) s  $name"
  else
    echo "STEP FAIL $name ## $(last_said_)"
  fi
}
uptime_() { cut -d. -f1 /proc/uptime; }
last_said_() { tail -n 5 /tmp/said | tr '\n' '|'; }
# Tells of a step that takes too long, and ends the guest: nothing behind it would say anything.
watch_() {
  while [ $(($(uptime_) - begun)) -lt "$step_seconds" ]; do sleep 1 >/dev/null; done
  echo "STEP FAIL $name ## not done within $step_seconds s: $(last_said_)"
  overdue_ 2>&1 | sed 's/^/HANG /'
  give_up_
}
give_up_() { poweroff -f; }
# The state of the guest and of the depot's process: it shows what a step waits for.
overdue_() {
  echo "the step's last lines:"; tail -n 20 /tmp/said
  echo "the last lines of the depot's log:"; timeout 5 tail -n 20 /host/depot/log
  echo "devices:"; timeout 5 losetup -a; grep -v -e cgroup -e proc -e sysfs /proc/mounts; cat /sys/block/nbd0/pid /sys/block/nbd0/size
  echo "threads:"
  for task in /proc/[0-9]*/task/[0-9]*; do
    program=$(tr '\0' ' ' <"${task%/task/*}/cmdline")
    [ -n "$program" ] || continue
    echo "${task#/proc/} $(cat "$task/comm") $(sed -n 's/^State:[[:space:]]*//p' "$task/status") of: $program"
    echo "  $(cut -d' ' -f1-3 "$task/syscall") $(sed 's/^\[<0>\] //; s/\/.*//' "$task/stack" | head -n 8 | tr '\n' ' ')"
  done
  echo "the kernel's last lines:"; echo w >/proc/sysrq-trigger; dmesg | tail -n 60
}
# Steps that must fail; where one does not, no step says anything.
check_steps() {
  for kind in fails_first_ fails_in_a_pipe_ fails_below_; do
    if said=$(step "$kind" "$kind"); then :; fi
    case $said in
    "STEP FAIL $kind "*) ;;
    *) echo "STEP FAIL a step passes although a command in it failed: $kind"; return ;;
    esac
  done
  said=$(give_up_() { kill -9 "$running"; }; overdue_() { echo "looked"; }; step_seconds=1; step "hangs" sleep 1000)
  case $said in
  *"STEP FAIL hangs ## not done within 1 s"*"HANG looked"*) echo "STEP ok steps fail that have a command that fails, and those that hang" ;;
  *) echo "STEP FAIL a step that hangs is not told: $said" ;;
  esac
}
fails_first_() { false; true; }
fails_in_a_pipe_() { false | cat; true; }
fails_below_() { fails_first_; true; }
# The disk of the guest, which is made anew where it has no file system.
host() {
  mkdir -p /host
  mount -t ext4 /dev/vda /host 2>/dev/null || { mkfs.ext4 -qF -E nodiscard /dev/vda && mount -t ext4 /dev/vda /host; }
}
make() {
  case $1 in
  ext4) mkfs.ext4 -qF "$2" ;;
  xfs) mkfs.xfs -qf "$2" ;;
  btrfs) mkfs.btrfs -qf "$2" ;;
  esac
}
check() {
  case $1 in
  ext4) e2fsck -fn "$2" ;;
  xfs) xfs_repair -n "$2" ;;
  btrfs) btrfs check "$2" ;;
  esac
}
