package doctor

import (
	"cmp"
	"slices"
)

// Severity is how much a finding matters.
type Severity string

const (
	// Error says that something that was asked for does not happen.
	Error Severity = "Error"
	// Warning says that it happens, and less well, or will stop to.
	Warning Severity = "Warning"
)

// Finding is one fault.
type Finding struct {
	Severity Severity `json:"severity"`
	// Reason is a word from the documentation.
	Reason Reason `json:"reason"`
	// Object is kind and name.
	Object string `json:"object"`
	// From is the file and document of the object; empty for one of the cluster.
	From string `json:"from,omitempty"`
	// Message says what is wrong and what follows from it.
	Message string `json:"message"`
	// Fix is what to do where Command does not say it all.
	Fix string `json:"fix,omitempty"`
	// Command mends the fault, or is the first step. Empty where no one command can.
	Command string `json:"command,omitempty"`
}

// Reason names a kind of fault.
type Reason string

// The reasons, in the order in which findings of equal severity are told.
const (
	ReasonCRDMissing                = Reason("CRDMissing")
	ReasonCRDOutdated               = Reason("CRDOutdated")
	ReasonCRDStoredVersion          = Reason("CRDStoredVersion")
	ReasonControllerMissing         = Reason("ControllerMissing")
	ReasonControllerStock           = Reason("ControllerStock")
	ReasonControllerNotAvailable    = Reason("ControllerNotAvailable")
	ReasonFeatureGatesInvalid       = Reason("FeatureGatesInvalid")
	ReasonFeatureGateOff            = Reason("FeatureGateOff")
	ReasonObjectInvalid             = Reason("ObjectInvalid")
	ReasonGPUPoolMissing            = Reason("GPUPoolMissing")
	ReasonPoolLabelMisplaced        = Reason("PoolLabelMisplaced")
	ReasonNoNodePools               = Reason("NoNodePools")
	ReasonNodeClassMissing          = Reason("NodeClassMissing")
	ReasonNodeClassNotReady         = Reason("NodeClassNotReady")
	ReasonNoInstanceTypes           = Reason("NoInstanceTypes")
	ReasonPartitioningUnsupported   = Reason("PartitioningUnsupported")
	ReasonBudgetBlocks              = Reason("BudgetBlocks")
	ReasonTaintNotTolerated         = Reason("TaintNotTolerated")
	ReasonAgentMissing              = Reason("AgentMissing")
	ReasonAgentNotOnNode            = Reason("AgentNotOnNode")
	ReasonAgentSilent               = Reason("AgentSilent")
	ReasonOperatorNamespaceDiffers  = Reason("OperatorNamespaceDiffers")
	ReasonOperandDisabled           = Reason("OperandDisabled")
	ReasonMIGStrategyDiffers        = Reason("MIGStrategyDiffers")
	ReasonMIGLayoutsMissing         = Reason("MIGLayoutsMissing")
	ReasonDevicePluginConfigUnset   = Reason("DevicePluginConfigUnset")
	ReasonDevicePluginConfigMissing = Reason("DevicePluginConfigMissing")
	ReasonLabelNeverMatches         = Reason("LabelNeverMatches")
	ReasonPartitionNeverOffered     = Reason("PartitionNeverOffered")
)

// Reasons are all reasons, in their order. The caller owns the slice.
func Reasons() []Reason {
	return []Reason{
		ReasonCRDMissing, ReasonCRDOutdated, ReasonCRDStoredVersion,
		ReasonControllerMissing, ReasonControllerStock, ReasonControllerNotAvailable, ReasonFeatureGatesInvalid, ReasonFeatureGateOff,
		ReasonObjectInvalid, ReasonGPUPoolMissing, ReasonPoolLabelMisplaced, ReasonNoNodePools,
		ReasonNodeClassMissing, ReasonNodeClassNotReady, ReasonNoInstanceTypes, ReasonPartitioningUnsupported, ReasonBudgetBlocks,
		ReasonTaintNotTolerated, ReasonAgentMissing, ReasonAgentNotOnNode, ReasonAgentSilent,
		ReasonOperatorNamespaceDiffers, ReasonOperandDisabled, ReasonMIGStrategyDiffers, ReasonMIGLayoutsMissing,
		ReasonDevicePluginConfigUnset, ReasonDevicePluginConfigMissing,
		ReasonLabelNeverMatches, ReasonPartitionNeverOffered,
	}
}

// Report is the answer. Its JSON form is the output of kubectl gpupool doctor -o json;
// fields are added in later versions, never changed.
type Report struct {
	// Findings, errors first.
	Findings []Finding `json:"findings"`
	Errors   int       `json:"errors"`
	Warnings int       `json:"warnings"`
	// Examined counts the objects that were looked at, by kind.
	Examined []Count `json:"examined"`
	// Notes say what could not be examined, and why.
	Notes []string `json:"notes"`
}

// Count is a number of objects.
type Count struct {
	Kind   string `json:"kind"`
	Number int    `json:"number"`
}

// arrange sorts, counts and drops repetitions.
func (r *Report) arrange() {
	order := Reasons()
	slices.SortStableFunc(r.Findings, func(a, b Finding) int {
		return cmp.Or(
			cmp.Compare(a.Severity, b.Severity), // Error, Warning
			cmp.Compare(slices.Index(order, a.Reason), slices.Index(order, b.Reason)),
			cmp.Compare(a.Object, b.Object), cmp.Compare(a.Message, b.Message))
	})
	r.Findings = slices.Compact(r.Findings)
	for _, f := range r.Findings {
		if f.Severity == Error {
			r.Errors++
		} else {
			r.Warnings++
		}
	}
}
