#!/bin/sh
# Says whether a real node can run here, and installs what Debian has packages for.
# Status: 0 it can; 3 it cannot, and stdout says why; anything else is an error.
set -eu

skip() {
	echo "e2e-node: skipped, $*"
	exit 3
}

[ "$(uname -s)" = Linux ] || skip "a real node needs Linux and this is $(uname -s)"
[ "$(id -u)" = 0 ] || skip "a real node needs root: run it as root, for example with sudo"
capabilities=$(sed -n 's/^CapEff:[[:space:]]*//p' /proc/self/status)
# CAP_SYS_ADMIN is bit 21.
[ $((0x$capabilities >> 21 & 1)) = 1 ] || skip "root lacks CAP_SYS_ADMIN here: run it outside a container, or in a privileged one"

grep -qw overlay /proc/filesystems || modprobe overlay 2>/dev/null || skip "the kernel has no overlay file system"

missing=
want() {
	for path in $2; do
		if command -v "$path" >/dev/null 2>&1 || [ -x "$path" ]; then return; fi
	done
	missing="$missing $1"
}
want containerd containerd
want containerd ctr
want runc runc
for plugin in bridge host-local loopback; do
	want containernetworking-plugins "/usr/lib/cni/$plugin /opt/cni/bin/$plugin /usr/libexec/cni/$plugin"
done
want gcc "cc gcc"
[ -e /usr/include/stdlib.h ] || missing="$missing libc6-dev"
[ -n "$missing" ] || exit 0

command -v apt-get >/dev/null 2>&1 ||
	skip "the packages$missing (by Debian's names) are missing: install them with this system's package manager"
echo "e2e-node: installing$missing"
apt-get update -qq
# shellcheck disable=SC2086 # words
DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing >/dev/null
# The machine has a containerd of its own; the service that the package starts is not wanted.
case " $missing " in *" containerd "*)
	if [ -d /run/systemd/system ]; then systemctl disable --now --quiet containerd.service; fi ;;
esac
