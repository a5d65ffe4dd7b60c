//go:build cgo

package nvml

import (
	"encoding/binary"
	"fmt"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/agent"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/gpu/health"
)

const mib = 1 << 20

// probe fills in the facts of one check.
type probe func(*Library, nvml.Device, *health.GPU) error

var probes = map[health.Check]probe{
	health.CheckGPUModel:    identity,
	health.CheckGPULost:     lost,
	health.CheckMIG:         mig,
	health.CheckECC:         ecc,
	health.CheckRowRemap:    rows,
	health.CheckInfoROM:     infoROM,
	health.CheckNVLink:      nvLink,
	health.CheckFabric:      fabric,
	health.CheckPCIe:        pcie,
	health.CheckThrottle:    throttle,
	health.CheckRecovery:    recovery,
	health.CheckPersistence: persistence,
}

func lacking(symbol string) error {
	return agent.NewError(agent.NotSupported, symbol, "the library lacks it")
}

func identity(_ *Library, d nvml.Device, out *health.GPU) error {
	id := &health.Identity{Minor: -1}
	var ret nvml.Return
	if id.Product, ret = d.GetName(); ret != nvml.SUCCESS {
		return convert("nvmlDeviceGetName", ret)
	}
	if id.UUID, ret = d.GetUUID(); ret != nvml.SUCCESS {
		return convert("nvmlDeviceGetUUID", ret)
	}
	memory, ret := d.GetMemoryInfo()
	if ret != nvml.SUCCESS {
		return convert("nvmlDeviceGetMemoryInfo", ret)
	}
	id.MemoryMiB = int(memory.Total / mib)
	if major, minor, ret := d.GetCudaComputeCapability(); ret == nvml.SUCCESS {
		id.ComputeCapability = fmt.Sprintf("%d.%d", major, minor)
	}
	if minor, ret := d.GetMinorNumber(); ret == nvml.SUCCESS {
		id.Minor = minor
	}
	out.Identity = id
	return nil
}

// lost asks for something that the driver must fetch from the GPU.
func lost(l *Library, d nvml.Device, _ *health.GPU) error {
	if !l.has("nvmlDeviceGetCurrentClocksThrottleReasons") {
		return nil
	}
	if _, ret := d.GetCurrentClocksThrottleReasons(); ret == nvml.ERROR_GPU_IS_LOST || ret == nvml.ERROR_RESET_REQUIRED {
		return convert("nvmlDeviceGetCurrentClocksThrottleReasons", ret)
	}
	return nil
}

func ecc(l *Library, d nvml.Device, out *health.GPU) error {
	current, pending, ret := d.GetEccMode()
	if ret != nvml.SUCCESS {
		return convert("nvmlDeviceGetEccMode", ret)
	}
	facts := &health.ECC{Enabled: current == nvml.FEATURE_ENABLED, Pending: pending == nvml.FEATURE_ENABLED}
	if l.has("nvmlDeviceGetTotalEccErrors") {
		n, ret := d.GetTotalEccErrors(nvml.MEMORY_ERROR_TYPE_UNCORRECTED, nvml.VOLATILE_ECC)
		if err := optional("nvmlDeviceGetTotalEccErrors", ret); err != nil {
			return err
		}
		facts.Uncorrectable = n
	}
	if l.has("nvmlDeviceGetSramEccErrorStatus") {
		status, ret := d.GetSramEccErrorStatus()
		if err := optional("nvmlDeviceGetSramEccErrorStatus", ret); err != nil {
			return err
		}
		facts.SRAMThreshold = ret == nvml.SUCCESS && status.BThresholdExceeded != 0
	}
	out.ECC = facts
	return nil
}

// optional lets a part of a check be unsupported: a MIG GPU with instances has no
// row remapping, for example.
func optional(call string, ret nvml.Return) error {
	if err := convert(call, ret); agent.CodeOf(err) != agent.NotSupported {
		return err
	}
	return nil
}

func rows(l *Library, d nvml.Device, out *health.GPU) error {
	facts, any := &health.Rows{}, false
	if l.has("nvmlDeviceGetRemappedRows") {
		correctable, uncorrectable, pending, failed, ret := d.GetRemappedRows()
		if err := optional("nvmlDeviceGetRemappedRows", ret); err != nil {
			return err
		}
		if ret == nvml.SUCCESS {
			any = true
			facts.Correctable, facts.Uncorrectable, facts.RemapPending, facts.RemapFailed = correctable, uncorrectable, pending, failed
		}
	}
	if l.has("nvmlDeviceGetRetiredPagesPendingStatus") {
		pending, ret := d.GetRetiredPagesPendingStatus()
		if err := optional("nvmlDeviceGetRetiredPagesPendingStatus", ret); err != nil {
			return err
		}
		any = any || ret == nvml.SUCCESS
		facts.PagesPending = ret == nvml.SUCCESS && pending == nvml.FEATURE_ENABLED
	}
	if l.has("nvmlDeviceGetRepairStatus") {
		status, ret := d.GetRepairStatus()
		if err := optional("nvmlDeviceGetRepairStatus", ret); err != nil {
			return err
		}
		any = any || ret == nvml.SUCCESS
		facts.RepairPending = ret == nvml.SUCCESS && (status.BChannelRepairPending != 0 || status.BTpcRepairPending != 0)
	}
	if !any {
		return lacking("nvmlDeviceGetRemappedRows")
	}
	out.Rows = facts
	return nil
}

func infoROM(l *Library, d nvml.Device, out *health.GPU) error {
	if !l.has("nvmlDeviceValidateInforom") {
		return lacking("nvmlDeviceValidateInforom")
	}
	ret := d.ValidateInforom()
	valid := ret == nvml.SUCCESS
	if !valid && ret != nvml.ERROR_CORRUPTED_INFOROM {
		return convert("nvmlDeviceValidateInforom", ret)
	}
	out.InfoROMValid = &valid
	return nil
}

// nvLink counts links until the GPU knows no more.
func nvLink(l *Library, d nvml.Device, out *health.GPU) error {
	if !l.has("nvmlDeviceGetNvLinkState") {
		return lacking("nvmlDeviceGetNvLinkState")
	}
	facts := &health.NVLink{}
	for link := range nvml.NVLINK_MAX_LINKS {
		state, ret := d.GetNvLinkState(link)
		if ret == nvml.ERROR_INVALID_ARGUMENT || ret == nvml.ERROR_NOT_SUPPORTED {
			continue
		}
		if ret != nvml.SUCCESS {
			return convert("nvmlDeviceGetNvLinkState", ret)
		}
		facts.Total++
		if state == nvml.FEATURE_ENABLED {
			facts.Active++
		}
	}
	if facts.Total == 0 {
		return lacking("nvmlDeviceGetNvLinkState")
	}
	out.NVLink = facts
	return nil
}

func fabric(l *Library, d nvml.Device, out *health.GPU) error {
	if l.has("nvmlDeviceGetGpuFabricInfoV") {
		if info, ret := d.GetGpuFabricInfoV().V2(); ret == nvml.SUCCESS {
			out.Fabric = fabricOf(info.State, info.Status)
			return nil
		} else if agent.CodeOf(convert("", ret)) != agent.NotSupported {
			return convert("nvmlDeviceGetGpuFabricInfoV", ret)
		}
	}
	if !l.has("nvmlDeviceGetGpuFabricInfo") {
		return lacking("nvmlDeviceGetGpuFabricInfo")
	}
	info, ret := d.GetGpuFabricInfoV().V1()
	if ret != nvml.SUCCESS {
		return convert("nvmlDeviceGetGpuFabricInfo", ret)
	}
	out.Fabric = fabricOf(info.State, info.Status)
	return nil
}

func fabricOf(state uint8, status uint32) *health.Fabric {
	return &health.Fabric{State: health.FabricState(state), Status: int(status)}
}

func pcie(l *Library, d nvml.Device, out *health.GPU) error {
	if !l.has("nvmlDeviceGetCurrPcieLinkWidth") || !l.has("nvmlDeviceGetMaxPcieLinkWidth") {
		return lacking("nvmlDeviceGetCurrPcieLinkWidth")
	}
	width, ret := d.GetCurrPcieLinkWidth()
	if ret != nvml.SUCCESS {
		return convert("nvmlDeviceGetCurrPcieLinkWidth", ret)
	}
	most, ret := d.GetMaxPcieLinkWidth()
	if ret != nvml.SUCCESS {
		return convert("nvmlDeviceGetMaxPcieLinkWidth", ret)
	}
	out.PCIe = &health.PCIe{Width: width, MaxWidth: most}
	return nil
}

// throttle asks by the new name first; the old one is an alias that later drivers
// may drop.
func throttle(l *Library, d nvml.Device, out *health.GPU) error {
	var mask uint64
	var ret nvml.Return
	switch {
	case l.has("nvmlDeviceGetCurrentClocksEventReasons"):
		mask, ret = d.GetCurrentClocksEventReasons()
	case l.has("nvmlDeviceGetCurrentClocksThrottleReasons"):
		mask, ret = d.GetCurrentClocksThrottleReasons()
	default:
		return lacking("nvmlDeviceGetCurrentClocksEventReasons")
	}
	if ret != nvml.SUCCESS {
		return convert("nvmlDeviceGetCurrentClocksEventReasons", ret)
	}
	out.Throttle = &mask
	return nil
}

func recovery(l *Library, d nvml.Device, out *health.GPU) error {
	if !l.has("nvmlDeviceGetFieldValues") {
		return lacking("nvmlDeviceGetFieldValues")
	}
	values := []nvml.FieldValue{{FieldId: nvml.FI_DEV_GET_GPU_RECOVERY_ACTION}}
	if ret := d.GetFieldValues(values); ret != nvml.SUCCESS {
		return convert("nvmlDeviceGetFieldValues", ret)
	}
	if ret := nvml.Return(values[0].NvmlReturn); ret != nvml.SUCCESS {
		if ret == nvml.ERROR_INVALID_ARGUMENT { // the driver does not know the field
			ret = nvml.ERROR_NOT_SUPPORTED
		}
		return convert("nvmlDeviceGetFieldValues", ret)
	}
	action := int(binary.NativeEndian.Uint32(values[0].Value[:4]))
	out.Recovery = &action
	return nil
}

func persistence(l *Library, d nvml.Device, out *health.GPU) error {
	if !l.has("nvmlDeviceGetPersistenceMode") {
		return lacking("nvmlDeviceGetPersistenceMode")
	}
	mode, ret := d.GetPersistenceMode()
	if ret != nvml.SUCCESS {
		return convert("nvmlDeviceGetPersistenceMode", ret)
	}
	on := mode == nvml.FEATURE_ENABLED
	out.Persistence = &on
	return nil
}
