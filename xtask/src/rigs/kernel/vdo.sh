# One tree on ext4 above dm-vdo and above a depot, in one guest: what each stores of it.
run_vdo() {
  way=$1
  step "a disk of the guest" host
  mkdir -p /tree /mnt; tar xf /tree.tar -C /tree
  step "dm-vdo: format, start, mkfs, mount" vdo_
  step "dm-vdo: a tree" copy_
  dmsetup message vdo 0 stats | tr ',' '\n' | sed -n 's/^ *\(dataBlocksUsed\|logicalBlocksUsed\) : /\1 /p' >/tmp/vdo
  umount /mnt; dmsetup remove vdo
  step "depot: create, attach, mkfs, mount" depot_
  step "depot: a tree" copy_
  umount /mnt; sync
  # Once it is detached, everything is stored and packed.
  $onefold volume detach /host/depot
  stats=$($onefold volume stats /host/depot --json)
  echo "VDO {\"tree_bytes\":$(find /tree -type f -exec stat -c %s {} + | awk "{s += \$1} END {print s}"),\"used\":$(sed -n 's/dataBlocksUsed //p' /tmp/vdo),\"logical\":$(sed -n 's/logicalBlocksUsed //p' /tmp/vdo),\"stats\":$stats}"
}
vdo_() {
  vdoformat --force --slab-bits=15 --uds-memory-size=0.25 --logical-size=2G /dev/vdb
  blocks=$(($(cat /sys/block/vdb/size) / 8))
  echo "0 $((2 << 21)) vdo V4 /dev/vdb $blocks 4096 32768 16380 compression on" | dmsetup create vdo
  mkfs.ext4 -qF /dev/mapper/vdo || mkfs.ext4 -qF "/dev/dm-0"
  mount -t ext4 -o discard /dev/dm-0 /mnt
}
depot_() {
  $onefold -q volume create /host/depot --size 2G
  $onefold volume attach /host/depot --via "$way" >/tmp/device
  make ext4 "$(head -n 1 /tmp/device)"; mount -t ext4 -o discard "$(head -n 1 /tmp/device)" /mnt
}
copy_() { cp -a /tree /mnt/one; sync; cp -a /tree /mnt/two; sync; sleep 3; }
