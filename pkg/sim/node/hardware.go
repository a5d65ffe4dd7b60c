package node

import (
	"fmt"

	"gopkg.in/yaml.v3"
)

// Hardware predicts what NVIDIA's software shows on a node of an instance type.
type Hardware interface {
	// GPUs returns how many NVIDIA GPUs an instance type has, zero for none or an unknown type.
	GPUs(instanceType string) int
	// Predict returns GFD's labels and the device plugin's resources for a node on which the
	// partition is in effect, and an error when the GPUs cannot be partitioned so.
	Predict(instanceType string, p Partition) (labels map[string]string, resources map[string]int64, err error)
}

// Partition is how the GPUs of a node are divided.
type Partition struct {
	// Layout is a mig-parted layout; empty means that MIG is off.
	Layout string
	// File is the mig-parted file that the layout is looked up in first; empty for those that
	// mig-parted generates alone.
	File string
	// Strategy is the device plugin's MIG strategy: none, single or mixed.
	Strategy string
	// Sharing multiplies resources by time-slicing or MPS.
	Sharing Sharing
}

// Sharing is the sharing section of a device plugin config. The zero value shares nothing.
type Sharing struct {
	TimeSlicing *Replicated `yaml:"timeSlicing"`
	MPS         *Replicated `yaml:"mps"`
}

// Replicated lists resources that are offered several times.
type Replicated struct {
	RenameByDefault            bool       `yaml:"renameByDefault"`
	FailRequestsGreaterThanOne bool       `yaml:"failRequestsGreaterThanOne"`
	Resources                  []Replicas `yaml:"resources"`
}

// Replicas is one resource and how often each device of it is offered.
type Replicas struct {
	Name     string `yaml:"name"`
	Replicas int    `yaml:"replicas"`
}

// pluginConfig is what the stack reads of a device plugin config file.
type pluginConfig struct {
	Flags struct {
		MIGStrategy string `yaml:"migStrategy"`
	} `yaml:"flags"`
	Sharing Sharing `yaml:"sharing"`
}

func parsePluginConfig(text string) (pluginConfig, error) {
	var c pluginConfig
	if err := yaml.Unmarshal([]byte(text), &c); err != nil {
		return c, fmt.Errorf("parsing device plugin config, %w", err)
	}
	return c, nil
}
