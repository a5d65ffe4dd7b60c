package health

import (
	"bytes"
	_ "embed"
	"fmt"
	"slices"
	"sync"

	"gopkg.in/yaml.v3"
)

// XIDClass says what an XID error means for the node.
type XIDClass string

const (
	// XIDApplication errors are the workload's own; they are ignored.
	XIDApplication XIDClass = "Application"
	// XIDWarn errors are told and fence nothing.
	XIDWarn XIDClass = "Warn"
	// XIDReset errors need a reset of the GPU.
	XIDReset XIDClass = "Reset"
	// XIDReboot errors need a reboot of the node.
	XIDReboot XIDClass = "Reboot"
	// XIDReplace errors need another machine.
	XIDReplace XIDClass = "Replace"
)

var xidClasses = []XIDClass{XIDApplication, XIDWarn, XIDReset, XIDReboot, XIDReplace}

// xidReasons maps the classes that are faults to their reason.
var xidReasons = map[XIDClass]Reason{
	XIDWarn:    XIDWarning,
	XIDReset:   XIDNeedsReset,
	XIDReboot:  XIDNeedsReboot,
	XIDReplace: XIDNeedsReplacement,
}

// XIDPolicy is one row of an XID table.
type XIDPolicy struct {
	Code  int      `yaml:"code"`
	Class XIDClass `yaml:"class"`
	// Name is NVIDIA's name of the error; empty when unknown.
	Name string `yaml:"name,omitempty"`
	// AWS, EKS, NVSentinel and Plugin are what these sources say of the code.
	AWS        XIDClass `yaml:"aws,omitempty"`
	EKS        bool     `yaml:"eks,omitempty"`
	NVSentinel XIDClass `yaml:"nvsentinel,omitempty"`
	Plugin     bool     `yaml:"plugin,omitempty"`
}

//go:embed data/xids.yaml
var xidData []byte

var defaultXIDs = sync.OnceValue(func() []XIDPolicy {
	var doc struct {
		XIDs []XIDPolicy `yaml:"xids"`
	}
	dec := yaml.NewDecoder(bytes.NewReader(xidData))
	dec.KnownFields(true)
	if err := dec.Decode(&doc); err != nil {
		panic(fmt.Sprintf("reading the embedded xid table, %v", err))
	}
	return doc.XIDs
})

// DefaultXIDs returns the documented table in order of codes. The caller owns
// the slice.
func DefaultXIDs() []XIDPolicy { return slices.Clone(defaultXIDs()) }

// XIDClassOf returns the class and name of a code: the policy's own row wins over
// the documented table; a code in neither is an XIDWarn.
func (p Policy) XIDClassOf(code int) (XIDClass, string) {
	name := ""
	class := XIDWarn
	for _, row := range defaultXIDs() {
		if row.Code == code {
			class, name = row.Class, row.Name
		}
	}
	for _, row := range p.XIDs {
		if row.Code == code {
			class = row.Class
		}
	}
	return class, name
}
