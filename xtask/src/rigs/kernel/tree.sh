# tree.sh ROOT TAR MIB: a tar of this workspace's text and of sources that cargo has fetched, some MIB of them.
set -eu
root=$1 tar=$2 mib=$3
tar -cf "$tar" -C "$root" docs crates xtask
registry=$(ls -d "${CARGO_HOME:-$HOME/.cargo}"/registry/src/*/ | head -n 1)
left=$((mib << 10))
for crate in $(ls "$registry"); do
  kib=$(du -sk "$registry/$crate" | cut -f1)
  # Crates of bindings and of prebuilt libraries would be most of it.
  [ "$kib" -le 12000 ] || continue
  left=$((left - kib)); [ "$left" -gt 0 ] || break
  echo "$crate"
done >"$tar.list"
tar -rf "$tar" -C "$registry" -T "$tar.list"
