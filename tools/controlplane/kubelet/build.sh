#!/bin/sh
# Builds the kubelet of the control plane's version.
# Usage: build.sh [dir]      default: bin/controlplane of this repository
# It is kept as long as its inputs are the same: their digest is linked into it.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
dir=${1:-$here/../../../bin/controlplane}
mkdir -p "$dir"
dir=$(cd "$dir" && pwd)
cd "$here"
CGO_ENABLED=0
GOFLAGS=-buildvcs=false
GOWORK=off
export CGO_ENABLED GOFLAGS GOWORK
kubernetes=$(sed -n 's/^[[:space:]]*k8s.io\/kubernetes v/v/p' ../go.mod)
stamp=$({
	cat build.sh ./*.go ../go.mod ../go.sum
	go env GOVERSION GOOS GOARCH
} | sha256sum | cut -c1-16)
if [ "$("$dir/kubelet" --stamp 2>/dev/null)" = "$stamp" ]; then
	echo "kubelet: up to date ($kubernetes, $stamp)"
	exit 0
fi
echo "kubelet: building $kubernetes"
trap 'rm -f "$dir/kubelet.new"' EXIT
base=k8s.io/component-base/version
number=${kubernetes#v}
minor=${number#*.}
go build -ldflags="-s -w -X main.stamp=$stamp -X $base.gitVersion=$kubernetes -X $base.gitMajor=${number%%.*} -X $base.gitMinor=${minor%%.*} -X $base.gitTreeState=clean" -o "$dir/kubelet.new" .
mv -f "$dir/kubelet.new" "$dir/kubelet"
echo "kubelet: built in $dir ($kubernetes, $stamp)"
