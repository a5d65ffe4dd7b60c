package guest

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestHierarchies(t *testing.T) {
	for name, tc := range map[string]struct {
		mounts string
		want   []Hierarchy
	}{
		"version 2": {
			"30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n22 1 8:1 / / rw - ext4 /dev/sda1 rw\n",
			[]Hierarchy{{Mount: "/sys/fs/cgroup", Version: 2}},
		},
		"version 1 and an idle version 2": {
			"31 25 0:27 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n" +
				"32 25 0:28 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,xattr,release_agent=/lib/systemd/agent,name=systemd\n" +
				"33 25 0:29 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n",
			[]Hierarchy{
				{Mount: "/sys/fs/cgroup/systemd", Options: "xattr,name=systemd", Version: 1},
				{Mount: "/sys/fs/cgroup/cpu,cpuacct", Options: "cpu,cpuacct", Version: 1},
			},
		},
		"none":    {"22 1 8:1 / / rw - ext4 /dev/sda1 rw\n", nil},
		"garbage": {"- - -\n1 - cgroup\n\n", nil},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, Hierarchies(tc.mounts)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestHierarchyHolds(t *testing.T) {
	for line, want := range map[string]bool{"cpu,cpuacct": true, "cpuacct": true, "memory": false, "": false} {
		if got := (Hierarchy{Options: "cpu,cpuacct", Version: 1}).holds(line); got != want {
			t.Errorf("%q: got %t", line, got)
		}
	}
	if h := (Hierarchy{Version: 2}); !h.holds("") || h.holds("memory") {
		t.Error("version 2 holds the line without controllers, and no other")
	}
}
