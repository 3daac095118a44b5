# One tree on ext4 above dm-vdo and above a depot, in one guest: what each stores of it. The tree is a tar on /dev/vdc.
run_vdo() {
  way=$1
  step "a disk of the guest" host
  mkdir -p /mnt
  step "dm-vdo: format, start, mkfs, mount" vdo_
  step "dm-vdo: a tree" copy_
  step "dm-vdo: packed, counted" vdo_blocks_
  step "depot: create, attach, mkfs, mount" depot_
  step "depot: a tree" copy_
  step "depot: packed, counted" depot_blocks_
  echo "VDO {\"tree_bytes\":$(cat /tmp/tree_bytes),\"vdo\":$(cat /tmp/vdo),\"depot\":$(cat /tmp/depot)}"
}
vdo_() {
  vdoformat --force --slab-bits=15 --uds-memory-size=0.25 --logical-size=2G /dev/vdb
  blocks=$(($(cat /sys/block/vdb/size) / 8))
  echo "0 $((2 << 21)) vdo V4 /dev/vdb $blocks 4096 32768 16380 deduplication on compression on" | dmsetup create vdo
  overhead=$(vdo_count_ overheadBlocksUsed); echo "$overhead" >/tmp/overhead
  mkfs.ext4 -qF /dev/dm-0
  mount -t ext4 -o discard /dev/dm-0 /mnt
}
vdo_count_() { dmsetup message vdo 0 stats | tr ',' '\n' | sed -n "s/^ *$1 : //p" | grep .; }
# Incomplete packs are written out once compression is switched off.
vdo_blocks_() {
  umount /mnt; dmsetup message vdo 0 compression off; sleep 2
  data=$(vdo_count_ dataBlocksUsed); overhead=$(vdo_count_ overheadBlocksUsed); logical=$(vdo_count_ logicalBlocksUsed)
  echo "{\"data\":$data,\"overhead_before\":$(cat /tmp/overhead),\"overhead\":$overhead,\"logical\":$logical}" >/tmp/vdo
  dmsetup remove vdo
}
depot_() {
  $onefold -q volume create /host/depot --size 2G
  $onefold volume attach /host/depot --via "$way" >/tmp/attached
  device=$(head -n 1 /tmp/attached)
  make ext4 "$device"; mount -t ext4 -o discard "$device" /mnt
}
# Counters begin anew with each opening, so they are read before the device is detached. Once it is, everything is
# stored and packed, and the manifest names the zones. What was overwritten since is garbage until it is collected.
depot_blocks_() {
  umount /mnt; $onefold volume stats /host/depot --json >/tmp/before
  $onefold volume detach /host/depot
  stats=$($onefold volume stats /host/depot --json); manifest=$($onefold volume dump /host/depot manifest --json)
  $onefold volume collect /host/depot
  collected=$($onefold volume dump /host/depot manifest --json)
  folder=$(find /host/depot -type f ! -name data ! -name ballast -exec stat -c %s {} + | awk '{s += $1} END {print s}')
  echo "{\"counted\":$(cat /tmp/before),\"stats\":$stats,\"manifest\":$manifest,\"collected\":$collected,\"folder_bytes\":$folder}" >/tmp/depot
}
copy_() {
  mkdir /mnt/tree; tar xf /dev/vdc -C /mnt/tree; sync
  find /mnt/tree -type f -exec stat -c %s {} + | awk '{s += $1} END {print s}' >/tmp/tree_bytes
}
