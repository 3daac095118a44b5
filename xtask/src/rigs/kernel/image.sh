# image.sh KERNEL ROOT MODULES PROGRAMS: makes ROOT.gz, an initramfs of busybox, modules and programs with the libraries
# they need; files that are in ROOT already come along. A program is a path, or a name on PATH.
set -eu
kernel=$1 root=$2 modules=$3 programs=$4
export PATH=$PATH:/usr/sbin:/sbin
mkdir -p "$root/bin" "$root/dev" "$root/proc" "$root/sys" "$root/tmp" "$root/lib/modules" "$root/etc" "$root/lib64" "$root/run"
cp "$(command -v busybox)" "$root/bin/busybox"
for applet in $(busybox --list | grep -vx busybox); do ln -sf busybox "$root/bin/$applet"; done
version=$(ls "$kernel/unpacked/lib/modules"); : >"$root/lib/modules/order"
for module in $modules; do
  modprobe -d "$kernel/unpacked" -S "$version" --show-depends "$module" | awk '/^insmod/{print $2}' | while read -r file; do
    name=$(basename "$file"); name=${name%.xz}; name=${name%.zst}
    [ ! -f "$root/lib/modules/$name" ] || continue
    case $file in
    *.xz) xz -dc "$file" ;;
    *.zst) zstd -dcq "$file" ;;
    *) cat "$file" ;;
    esac >"$root/lib/modules/$name"
    echo "$name" >>"$root/lib/modules/order"
  done
done
for program in $programs; do
  path=$(command -v "$program" || echo "$kernel/unpacked/usr/bin/$program")
  rm -f "$root/bin/$(basename "$path")"; cp -L "$path" "$root/bin/"
  for library in $(ldd "$path" | grep -o '/[^ ]*'); do
    [ -e "$root$library" ] || { mkdir -p "$root$(dirname "$library")"; cp -L "$library" "$root$library"; }
  done
done
strip "$root/bin/onefold" 2>/dev/null || true
printf 'root:x:0:0:root:/:/bin/sh\n' >"$root/etc/passwd"; printf 'root:x:0:\n' >"$root/etc/group"
chmod +x "$root/init"
(cd "$root" && find . | cpio -o -H newc --quiet | gzip -1) >"$root.gz"
