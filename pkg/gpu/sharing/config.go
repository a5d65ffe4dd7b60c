package sharing

import (
	"fmt"
	"strings"
)

// ConfigLabel is the node label by which the device plugin chooses its
// configuration.
const ConfigLabel = "nvidia.com/device-plugin.config"

// ConfigName is the key of the configuration in the device plugin's ConfigMap,
// and the value of ConfigLabel: "time-slicing-4", "mps-8-renamed-strict". Equal
// sharing has equal names, other sharing others. It is empty where nothing is
// shared.
func (s Sharing) ConfigName() string {
	if !s.Enabled() {
		return ""
	}
	name := fmt.Sprintf("%s-%d", s.Strategy, s.Replicas)
	if s.RenameByDefault {
		name += "-renamed"
	}
	if s.FailRequestsGreaterThanOne {
		name += "-strict"
	}
	return name
}

// Config is the configuration in the device plugin's format, version v1. It is
// empty where nothing is shared. failRequestsGreaterThanOne is always written
// out, as the plugin's default differs between the two strategies.
func (s Sharing) Config() string {
	if !s.Enabled() {
		return ""
	}
	section := "timeSlicing"
	if s.Strategy == MPS {
		section = "mps"
	}
	return strings.Join([]string{
		"version: v1",
		"sharing:",
		"  " + section + ":",
		fmt.Sprintf("    renameByDefault: %t", s.RenameByDefault),
		fmt.Sprintf("    failRequestsGreaterThanOne: %t", s.FailRequestsGreaterThanOne),
		"    resources:",
		"    - name: " + ResourceGPU,
		fmt.Sprintf("      replicas: %d", s.Replicas),
		"",
	}, "\n")
}
