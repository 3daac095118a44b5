# power WAY FILE_SYSTEM SYNCED: what a power cut left is looked at, if there is anything; then files are written, synced
# and told to the host, until it cuts the power. The name of each file holds the digest of its content.
run_power() {
  way=$1 kind=$2 synced=$3
  mkdir -p /mnt /host
  if [ "$synced" -ge 0 ]; then
    step "the guest's own disk is clean" own_disk_
    step "attached $way, $kind: $synced synced files are whole" whole_
    step "$kind is clean, and so is the depot" clean_
    umount -l /mnt 2>/dev/null; $onefold volume detach /host/depot >/dev/null 2>&1
  else
    step "a disk of the guest" host
  fi
  [ "${4:-}" != last ] || return 0
  rm -rf /host/depot
  step "$4, $5: create, attach, mkfs, mount" fresh_ "$4" "$5"
  n=0; mkdir /mnt/files
  while [ "$n" -lt 5000 ]; do
    if [ $((n % 3)) = 0 ]; then yes "$n" | head -c $((n * 977 % 200000 + 1)) >/tmp/file
    else head -c $((n * 7919 % 300000 + 1)) /dev/urandom >/tmp/file; fi
    digest=$(sha256sum /tmp/file | cut -c1-64)
    cp /tmp/file "/mnt/files/$n-$digest" && sync "/mnt/files/$n-$digest" && sync /mnt/files || break
    echo "SYNCED $n"
    n=$((n + 1))
  done
  echo "STEP FAIL writing ended at file $n"
}
fresh_() {
  $onefold -q volume create /host/depot --size 512M
  $onefold volume attach /host/depot --via "$1" >/tmp/device
  make "$2" "$(head -n 1 /tmp/device)"; mount -t "$2" -o discard "$(head -n 1 /tmp/device)" /mnt
}
own_disk_() {
  e2fsck -p /dev/vda || [ $? -le 1 ]
  mount -t ext4 /dev/vda /host
}
whole_() {
  $onefold volume attach /host/depot --via "$way" >/tmp/device
  mount -t "$kind" "$(head -n 1 /tmp/device)" /mnt
  n=0
  while [ "$n" -le "$synced" ]; do
    file=$(echo /mnt/files/$n-*)
    [ "$(sha256sum <"$file" | cut -c1-64)" = "${file##*-}" ] || { echo "file $n of $synced is not what was synced"; exit 1; }
    n=$((n + 1))
  done
}
clean_() {
  umount /mnt; check "$kind" "$(head -n 1 /tmp/device)"
  $onefold volume detach /host/depot; $onefold volume check /host/depot --read-data
}
