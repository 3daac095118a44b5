# Steps of the guest: each is a function that must succeed, and prints one line for the host.
onefold=/bin/onefold
step() {
  name=$1; shift; begun=$(cut -d. -f1 /proc/uptime)
  # Within a condition, a shell does not end at a command that fails.
  (set -eu; "$@") >/tmp/said 2>&1
  if [ $? = 0 ]; then
    echo "STEP ok $(($(cut -d. -f1 /proc/uptime) - begun)) s  $name"
  else
    echo "STEP FAIL $name ## $(tail -n 5 /tmp/said | tr '\n' '|')"
  fi
}
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
