#!/bin/sh
# Pack an environment that has Penstock as a Debian package: pack.sh ENVIRONMENT DESTINATION
#
# The environment is made of Debian's own Python. It may lie anywhere: what names its place is
# written anew for /usr/lib/penstock.
set -eu
here=$(dirname "$(realpath "$0")")
packaging=$(dirname "$here")
environment=$(realpath "$1")
destination=$2
python=$("$environment/bin/python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
next=3.$((${python#3.} + 1))
version=$("$environment/bin/penstock" --version | sed -n '1s/^penstock \([^ ]*\).*/\1/p')
architecture=$(dpkg --print-architecture)

stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
root=$stage/root
install -d -m 755 "$root" "$root/DEBIAN" "$root/usr/lib" "$root/usr/bin"

# The environment, without what made it and what the maintainer scripts make anew.
cp -r --preserve=mode,links,timestamps "$environment" "$root/usr/lib/penstock"
library=$root/usr/lib/penstock
find "$library" -name __pycache__ -prune -exec rm -rf {} +
rm -rf "$library"/bin/activate* "$library"/bin/Activate* "$library"/bin/pip* "$library/include" \
    "$library"/lib/python3.*/site-packages/pip "$library"/lib/python3.*/site-packages/pip-*
for file in "$library"/bin/* "$library/pyvenv.cfg"; do
    [ -L "$file" ] || sed -i -e "s|$environment|/usr/lib/penstock|g" -e '/^command = /d' "$file"
done
ln -s ../lib/penstock/bin/penstock "$root/usr/bin/penstock"

# What the system reads.
put() { install -D -m 644 "$1" "$root/$2"; }
put "$packaging/systemd/penstock.sysusers.conf" usr/lib/sysusers.d/penstock.conf
put "$packaging/systemd/penstock.tmpfiles.conf" usr/lib/tmpfiles.d/penstock.conf
put "$packaging/systemd/penstock.service" lib/systemd/system/penstock.service
sed -i 's|/opt/penstock/bin/|/usr/bin/|' "$root/lib/systemd/system/penstock.service"
put "$packaging/systemd/penstock.toml" etc/penstock/penstock.toml
put "$packaging/prometheus/penstock_alerts.yml" usr/share/penstock/penstock_alerts.yml
put "$here/debian/copyright" usr/share/doc/penstock/copyright
put "$(dirname "$packaging")/CHANGELOG.md" usr/share/doc/penstock/changelog
gzip -9n "$root/usr/share/doc/penstock/changelog"
for page in "$packaging"/man/*.[1-8]; do
    [ -e "$page" ] || continue
    put "$page" "usr/share/man/man${page##*.}/${page##*/}"
    gzip -9n "$root/usr/share/man/man${page##*.}/${page##*/}"
done

# What dpkg reads.
size_kib=$(du -sk --exclude=DEBIAN "$root" | cut -f1)
sed -e "s/@VERSION@/$version/" -e "s/@ARCHITECTURE@/$architecture/" -e "s/@SIZE@/$size_kib/" \
    -e "s/@PYTHON@/$python/" -e "s/@NEXT@/$next/" "$here/debian/control" >"$root/DEBIAN/control"
echo /etc/penstock/penstock.toml >"$root/DEBIAN/conffiles"
install -m 755 "$here/debian/postinst" "$here/debian/prerm" "$here/debian/postrm" "$root/DEBIAN"
(cd "$root" && find usr lib etc -type f -exec md5sum {} +) >"$root/DEBIAN/md5sums"
chmod -R u+rwX,go+rX,go-w "$root"

mkdir -p "$destination"
dpkg-deb --root-owner-group --build "$root" "$destination/penstock_${version}_$architecture.deb"
