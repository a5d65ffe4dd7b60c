#!/bin/sh
# Builds the control plane that tests and the sandbox run:
#   <dir>/controlplane       one binary for four programs, with a link for each
#   <dir>/kwok               simulated kubelets
# Usage: build.sh [dir]      default: bin/controlplane of this repository
# What was built is kept as long as its inputs (this directory's files, the toolchain and
# the platform) are the same: their digest is linked into the binary, which is asked for it.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
dir=${1:-$here/../../bin/controlplane}
mkdir -p "$dir"
dir=$(cd "$dir" && pwd)
kubernetes=$(sed -n 's/^[[:space:]]*k8s.io\/kubernetes v/v/p' "$here/go.mod")
kwok=$(sed -n 's/^[[:space:]]*sigs.k8s.io\/kwok \(v[^ ]*\).*/\1/p' "$here/go.mod")

fail() {
	echo "controlplane: $*" >&2
	exit 1
}

command -v go >/dev/null 2>&1 ||
	fail "go is not on the PATH; install Go 1.21 or newer from https://go.dev/dl (it fetches the release that go.mod asks for)"
have=$(GOTOOLCHAIN=local go env GOVERSION)
minor=$(echo "$have" | sed -n 's/^go1\.\([0-9]*\).*/\1/p')
# Development builds of Go name no release; they are newer than any asked for.
if [ -n "$minor" ] && [ "$minor" -lt 21 ]; then
	fail "$have is too old; install Go 1.21 or newer from https://go.dev/dl (it fetches the release that go.mod asks for)"
fi

cd "$here"
CGO_ENABLED=0
GOFLAGS=-buildvcs=false
GOWORK=off
export CGO_ENABLED GOFLAGS GOWORK
version=$(go env GOVERSION) ||
	fail "$have cannot become $(sed -n 's/^go /go/p' go.mod), which go.mod asks for; install it from https://go.dev/dl, or unset GOTOOLCHAIN so that $have fetches it"

digest() {
	if command -v sha256sum >/dev/null 2>&1; then sha256sum; else shasum -a 256; fi | cut -c1-16
}
stamp=$({
	cat build.sh ./*.go go.mod go.sum
	echo "$version"
	go env GOOS GOARCH
} | digest)

complete() {
	for name in controlplane etcd kube-apiserver kube-scheduler kube-controller-manager kwok; do
		[ -x "$dir/$name" ] || return 1
	done
	[ "$("$dir/controlplane" --stamp 2>/dev/null)" = "$stamp" ]
}
if complete; then
	echo "controlplane: up to date ($kubernetes, kwok $kwok, $stamp)"
	exit 0
fi

echo "controlplane: building Kubernetes $kubernetes and kwok $kwok; the first build takes about ten minutes on two cores"
# The stamp, and with it the whole, counts only once everything is in place: kwok first.
trap 'rm -f "$dir/kwok.new" "$dir/controlplane.new"' EXIT
go build -ldflags="-s -w -X sigs.k8s.io/kwok/pkg/consts.Version=$kwok" -o "$dir/kwok.new" sigs.k8s.io/kwok/cmd/kwok
base=k8s.io/component-base/version
number=${kubernetes#v}
minor=${number#*.}
go build -ldflags="-s -w -X main.stamp=$stamp -X $base.gitVersion=$kubernetes -X $base.gitMajor=${number%%.*} -X $base.gitMinor=${minor%%.*} -X $base.gitTreeState=clean" -o "$dir/controlplane.new" .
# Renaming replaces a binary that is running, which writing to it cannot.
mv -f "$dir/kwok.new" "$dir/kwok"
for name in etcd kube-apiserver kube-scheduler kube-controller-manager; do
	ln -sf controlplane "$dir/$name"
done
mv -f "$dir/controlplane.new" "$dir/controlplane"
complete || fail "the binaries in $dir do not answer with the stamp $stamp; remove that directory and build again"
echo "controlplane: built in $dir ($kubernetes, kwok $kwok, $stamp)"
