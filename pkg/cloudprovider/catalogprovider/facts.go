package catalogprovider

import (
	_ "embed"
	"strconv"
	"strings"
	"sync"
)

// interfacesCSV has what the network of a type holds beyond the catalogue's figures.
//
//go:embed data/ec2-interfaces.csv
var interfacesCSV string

// network is one line of it.
type network struct {
	// cardENIs are the interfaces of the default network card. The VPC CNI uses no
	// other, so that they, and not all of the machine's, bound the pods.
	cardENIs int
	// podENIs are branch interfaces for pods with security groups of their own.
	podENIs int
}

var networks = sync.OnceValue(func() map[string]network {
	out := map[string]network{}
	for _, line := range strings.Split(interfacesCSV, "\n") {
		cells := strings.Split(line, ",")
		if strings.HasPrefix(line, "#") || len(cells) != 3 {
			continue
		}
		enis, errENIs := strconv.Atoi(cells[1])
		branches, errBranches := strconv.Atoi(cells[2])
		if errENIs == nil && errBranches == nil {
			out[cells[0]] = network{cardENIs: enis, podENIs: branches}
		}
	}
	return out
})

// gpuHosts are the makers of the CPUs of GPU families, whose names do not tell.
// Source: the instance types page of AWS; those that the AWS provider's recorded
// DescribeInstanceTypes has are compared by the package parity.
var gpuHosts = map[string]string{
	"g4dn": "intel", "g5": "amd", "g5g": "aws", "g6": "amd", "g6e": "amd", "g6f": "amd", "g7": "intel", "g7e": "intel", "gr6": "amd", "gr6f": "amd",
	"p3": "intel", "p3dn": "intel", "p4d": "intel", "p4de": "intel", "p5": "amd", "p5e": "amd", "p5en": "intel",
	"p6-b200": "intel", "p6-b300": "intel", "p6e-gb200": "nvidia",
}

// cpuMaker is the maker of the CPU: for general families the letter after the
// generation tells, a for AMD and g for AWS.
func cpuMaker(family string) string {
	if maker, ok := gpuHosts[family]; ok {
		return maker
	}
	_, attributes := splitFamily(family)
	switch {
	case strings.HasPrefix(attributes, "a"):
		return "amd"
	case strings.HasPrefix(attributes, "g"):
		return "aws"
	}
	return "intel"
}

// splitFamily cuts a family such as m7gd behind its generation.
func splitFamily(family string) (head, attributes string) {
	i := strings.IndexAny(family, "0123456789")
	if i < 0 {
		return family, ""
	}
	j := i
	for j < len(family) && family[j] >= '0' && family[j] <= '9' {
		j++
	}
	return family[:j], family[j:]
}
