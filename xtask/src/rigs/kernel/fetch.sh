# A Debian backports kernel and vdoformat, unpacked into $1, through a private apt root: the system's own lists and
# packages stay as they are. The stable kernel 6.1 has no ublk.
set -eu
mkdir -p "$1"; cd "$1"; [ ! -e done ] || [ ! -d unpacked/lib/modules ] || exit 0
apt_root=$PWD/apt
mkdir -p apt/etc/apt/apt.conf.d apt/etc/apt/preferences.d apt/etc/apt/sources.list.d apt/etc/apt/trusted.gpg.d \
  apt/var/lib/apt/lists/partial apt/var/lib/dpkg apt/var/cache/apt/archives/partial
: >apt/var/lib/dpkg/status
suite=$(. /etc/os-release; echo "$VERSION_CODENAME")-backports
mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Component: main' | head -n 1)
echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror $suite main" \
  >apt/etc/apt/sources.list.d/backports.list
printf 'Dir "%s";\nDir::State::status "%s/var/lib/dpkg/status";\nAPT::Sandbox::User "root";\n' "$apt_root" "$apt_root" >apt/apt.conf
export APT_CONFIG=$apt_root/apt.conf
apt-get -qq update
kernel=$(apt-cache search --names-only '^linux-image-6\.[0-9]*\..*-amd64$' | awk '{print $1}' |
  grep -v -e dbg -e unsigned -e cloud -e rt | sort -V | tail -n 1)
[ -n "$kernel" ] || { echo "no kernel in $suite"; exit 1; }
apt-get -qq download "$kernel" vdo
for package in linux-image-*.deb vdo_*.deb; do dpkg -x "$package" unpacked; done
[ -d unpacked/lib/modules ] || ln -s usr/lib/modules unpacked/lib/modules
depmod -b unpacked "$(ls unpacked/lib/modules)" 2>/dev/null || true
rm -rf ./*.deb apt; echo "$kernel" >done
