package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Gate is how an unverified node is kept from work.
// +kubebuilder:validation:Enum=StartupTaint;Registration;None
type Gate string

const (
	// GateStartupTaint registers nodes with a taint of ours, which goes once they are verified.
	GateStartupTaint Gate = "StartupTaint"
	// GateRegistration lets nodes register with Karpenter only once they are verified.
	GateRegistration Gate = "Registration"
	// GateNone lets nodes take work as soon as Karpenter does.
	GateNone Gate = "None"
)

// Enforcement is when the gate holds.
// +kubebuilder:validation:Enum=WhenSafe;Always
type Enforcement string

const (
	// EnforceWhenSafe opens the gate while it would deadlock.
	EnforceWhenSafe Enforcement = "WhenSafe"
	// EnforceAlways keeps the gate shut even where nodes then never become ready.
	EnforceAlways Enforcement = "Always"
)

// Readiness says when a new node may take work, and what becomes of one that never may.
// +kubebuilder:validation:XValidation:rule="!(has(self.gate) && self.gate == 'Registration') || !has(self.deadline) || !self.deadline.matches('^([0-9]{1,5}(h|m|s)){1,3}$') || duration(self.deadline) < duration('15m')",message="with gate Registration the deadline must be less than 15m, because Karpenter itself deletes a node that has not registered by then; lower the deadline, or use gate StartupTaint"
// +kubebuilder:validation:XValidation:rule="!(has(self.gate) && self.gate == 'None') || !has(self.enforce) || self.enforce != 'Always'",message="enforce: Always has nothing to enforce with gate None; use gate StartupTaint or Registration, or remove enforce"
type Readiness struct {
	// gate is how a node is kept from work until NVML has shown that driver, GPUs, MIG
	// geometry and fabric are as promised. StartupTaint: the node registers with the taint
	// readiness.karpenter-gpu.dev/unverified:NoSchedule; DaemonSets that make GPUs work must
	// tolerate it. Registration: the node keeps karpenter.sh/unregistered:NoExecute; for
	// images with the driver baked in. None: no gate. Defaults to StartupTaint.
	// +kubebuilder:default=StartupTaint
	// +optional
	Gate Gate `json:"gate,omitempty"`
	// enforce is WhenSafe or Always. WhenSafe: while a driver or device-plugin DaemonSet
	// does not tolerate the gate's taint, new nodes are not gated, and the condition GateSafe
	// names the DaemonSet and the fix. Always: they are gated nevertheless. Defaults to
	// WhenSafe.
	// +kubebuilder:default=WhenSafe
	// +optional
	Enforce Enforcement `json:"enforce,omitempty"`
	// deadline is the time from a node's launch by which it must be verified; past it the
	// node is replaced, with growing delays when one type, zone and image keeps failing.
	// From 1m to 24h, written with h, m and s; below 15m with gate Registration.
	// Defaults to 10m.
	// +kubebuilder:default="10m"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=16
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]{1,5}(h|m|s)){1,3}$') && duration(self) >= duration('1m') && duration(self) <= duration('24h')",message="deadline must be a duration from 1m to 24h written with h, m and s, such as 10m"
	// +optional
	Deadline *metav1.Duration `json:"deadline,omitempty"`
	// minDriverVersion is the oldest NVIDIA driver that passes, such as "550" or
	// "550.54.15". Parts that are left out count as 0. Unset: any driver.
	// +kubebuilder:validation:MaxLength=16
	// +kubebuilder:validation:XValidation:rule="self.matches('^[0-9]{1,4}([.][0-9]{1,4}){0,2}$')",message="minDriverVersion must be one to three numbers with points between them, such as \"550\" or \"550.54.15\""
	// +optional
	MinDriverVersion string `json:"minDriverVersion,omitempty"`
	// minCUDAVersion is the oldest CUDA version that the driver must support, such as "12"
	// or "12.4". Unset: any version.
	// +kubebuilder:validation:MaxLength=16
	// +kubebuilder:validation:XValidation:rule="self.matches('^[0-9]{1,3}([.][0-9]{1,3})?$')",message="minCUDAVersion must be one or two numbers with a point between them, such as \"12\" or \"12.4\""
	// +optional
	MinCUDAVersion string `json:"minCUDAVersion,omitempty"`
	// checks change single checks of the agent; a check that is not listed keeps its
	// built-in setting. Unset: all built-in settings.
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=32
	// +optional
	Checks []Check `json:"checks,omitempty"`
	// maxConcurrentTrials is how many nodes of the pool may be in trial at once after
	// verification has failed for reasons that all its nodes share, such as a bad image.
	// It stops a storm of replacements; the condition VerificationHealthy says what is
	// wrong. From 1 to 100. Defaults to 3.
	// +kubebuilder:default=3
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	// +optional
	MaxConcurrentTrials *int32 `json:"maxConcurrentTrials,omitempty"`
}

// CheckName names one check of the agent, as its reports do. The check of the boot ID is not
// among them: without it a report could be that of an earlier boot.
// +kubebuilder:validation:Enum=driver;driver-version;cuda-version;gpu-count;gpu-model;gpu-lost;device-nodes;mig;ecc;row-remap;inforom;nvlink;fabric;pcie;throttle;recovery-action;persistence;xid
type CheckName string

// The checks, in the order in which the agent reports them.
const (
	// CheckDriver checks whether the driver is loaded and agrees with the library that talks to it.
	CheckDriver CheckName = "driver"
	// CheckDriverVersion checks the driver against minDriverVersion.
	CheckDriverVersion CheckName = "driver-version"
	// CheckCUDAVersion checks the driver's CUDA version against minCUDAVersion.
	CheckCUDAVersion CheckName = "cuda-version"
	// CheckGPUCount checks the number of GPUs against the instance type's.
	CheckGPUCount CheckName = "gpu-count"
	// CheckGPUModel checks the models of the GPUs against the instance type's.
	CheckGPUModel CheckName = "gpu-model"
	// CheckGPULost checks that the driver has lost no GPU.
	CheckGPULost CheckName = "gpu-lost"
	// CheckDeviceNodes checks each GPU's files under /dev.
	CheckDeviceNodes CheckName = "device-nodes"
	// CheckMIG checks MIG mode and the exact partitions against the layout.
	CheckMIG CheckName = "mig"
	// CheckECC checks memory errors.
	CheckECC CheckName = "ecc"
	// CheckRowRemap checks row remapping and page retirement that failed or are pending.
	CheckRowRemap CheckName = "row-remap"
	// CheckInfoROM checks each GPU's InfoROM.
	CheckInfoROM CheckName = "inforom"
	// CheckNVLink checks that no NVLink is down.
	CheckNVLink CheckName = "nvlink"
	// CheckFabric checks that the GPUs have joined their fabric.
	CheckFabric CheckName = "fabric"
	// CheckPCIe checks the PCIe link width against the greatest possible.
	CheckPCIe CheckName = "pcie"
	// CheckThrottle checks hardware slowdown by heat or power.
	CheckThrottle CheckName = "throttle"
	// CheckRecovery checks that no GPU asks for a reset, reboot or drain.
	CheckRecovery CheckName = "recovery-action"
	// CheckPersistence checks that persistence mode is on.
	CheckPersistence CheckName = "persistence"
	// CheckXID checks XID events; health.xidPolicies give single codes an action.
	CheckXID CheckName = "xid"
)

// Severity is what a failed check means.
// +kubebuilder:validation:Enum=Fatal;Warning
type Severity string

const (
	// SeverityFatal keeps the node from work.
	SeverityFatal Severity = "Fatal"
	// SeverityWarning is reported and keeps nothing from work.
	SeverityWarning Severity = "Warning"
)

// Check changes one check of the agent.
// +kubebuilder:validation:XValidation:rule="has(self.enabled) || has(self.severity) || has(self.timeout)",message="a check must change something; set enabled, severity or timeout, or remove it from checks to keep its built-in setting"
// +kubebuilder:validation:XValidation:rule="!has(self.timeout) || !(self.name in ['driver-version', 'cuda-version', 'xid'])",message="timeout has nothing to bound for driver-version, cuda-version and xid, which make no call of their own; remove it, or set the timeout of gpu-count, whose call brings the versions"
type Check struct {
	// name is the check, as in the agent's reports: driver (loaded, and agrees with its
	// library), driver-version, cuda-version, gpu-count, gpu-model, gpu-lost, device-nodes
	// (files under /dev), mig (mode and exact partitions), ecc, row-remap, inforom, nvlink,
	// fabric, pcie (link width), throttle, recovery-action, persistence, xid.
	// +required
	Name CheckName `json:"name"`
	// enabled turns the check off when false. Unset: as built in, which is on for all.
	// +optional
	Enabled *bool `json:"enabled,omitempty"`
	// severity is what every fault that the check finds counts as: Fatal (keeps the node
	// from work) or Warning (is reported only). Unset: as built in for each fault; faults of
	// inforom, pcie, throttle and persistence are built in as Warning.
	// +optional
	Severity Severity `json:"severity,omitempty"`
	// timeout is how long one call of the check may take before it counts as failed, from 1s
	// to 5m, written with m and s; per GPU where the check looks at each. The agent of each
	// node of the pool takes it over within a heartbeat. driver-version, cuda-version and xid
	// make no call of their own and have none. Unset: as the agent is started, with
	// --probe-timeout, which is 2s.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=16
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]{1,5}(h|m|s)){1,3}$') && duration(self) >= duration('1s') && duration(self) <= duration('5m')",message="timeout must be a duration from 1s to 5m written with m and s, such as 5s"
	// +optional
	Timeout *metav1.Duration `json:"timeout,omitempty"`
}
