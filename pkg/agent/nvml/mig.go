//go:build cgo

package nvml

import (
	"fmt"
	"math"
	"strings"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/gpu/health"
)

// mig lists the MIG devices of a GPU, which are what work can use: a GPU instance
// without a compute instance is not among them. One GPU instance that is cut into
// several compute instances is told once.
func mig(l *Library, d nvml.Device, out *health.GPU) error {
	if !l.has("nvmlDeviceGetMigMode") {
		return lacking("nvmlDeviceGetMigMode")
	}
	current, pending, ret := d.GetMigMode()
	if ret != nvml.SUCCESS {
		return convert("nvmlDeviceGetMigMode", ret)
	}
	facts := &health.MIG{Enabled: current == nvml.DEVICE_MIG_ENABLE, Pending: pending == nvml.DEVICE_MIG_ENABLE}
	if facts.Enabled {
		if err := instances(l, d, facts); err != nil {
			return err
		}
	}
	out.MIG = facts
	return nil
}

func instances(l *Library, d nvml.Device, facts *health.MIG) error {
	for _, symbol := range []string{"nvmlDeviceGetMaxMigDeviceCount", "nvmlDeviceGetMigDeviceHandleByIndex", "nvmlDeviceGetGpuInstanceId"} {
		if !l.has(symbol) {
			return lacking(symbol)
		}
	}
	most, ret := d.GetMaxMigDeviceCount()
	if ret != nvml.SUCCESS {
		return convert("nvmlDeviceGetMaxMigDeviceCount", ret)
	}
	seen := map[int]bool{}
	for i := range most {
		device, ret := d.GetMigDeviceHandleByIndex(i)
		if ret == nvml.ERROR_NOT_FOUND || ret == nvml.ERROR_INVALID_ARGUMENT {
			continue // slots may be empty
		}
		if ret != nvml.SUCCESS {
			return convert("nvmlDeviceGetMigDeviceHandleByIndex", ret)
		}
		in, err := instance(l, d, device)
		if err != nil {
			return err
		}
		if !seen[in.ID] {
			seen[in.ID] = true
			facts.Instances = append(facts.Instances, in)
		}
	}
	return nil
}

func instance(l *Library, parent, device nvml.Device) (health.MIGInstance, error) {
	in := health.MIGInstance{Start: -1}
	var ret nvml.Return
	if in.ID, ret = device.GetGpuInstanceId(); ret != nvml.SUCCESS {
		return in, convert("nvmlDeviceGetGpuInstanceId", ret)
	}
	if in.UUID, ret = device.GetUUID(); ret != nvml.SUCCESS {
		return in, convert("nvmlDeviceGetUUID", ret)
	}
	profileID := placement(l, parent, &in)
	for _, name := range []func() string{
		func() string { return profileByID(l, parent, profileID) },
		func() string { return profileOfName(device) },
		func() string { return profileOfSize(l, parent, device) },
	} {
		if in.Profile = name(); in.Profile != "" {
			return in, nil
		}
	}
	in.Profile = fmt.Sprintf("unknown-%d", profileID)
	return in, nil
}

// placement fills in where the instance lies and returns its profile's ID, or -1.
// Reading it needs more rights than the rest; without them the place is unknown.
func placement(l *Library, parent nvml.Device, in *health.MIGInstance) int {
	if !l.has("nvmlDeviceGetGpuInstanceById") || !l.has("nvmlGpuInstanceGetInfo") {
		return -1
	}
	gi, ret := parent.GetGpuInstanceById(in.ID)
	if ret != nvml.SUCCESS {
		return -1
	}
	info, ret := gi.GetInfo()
	if ret != nvml.SUCCESS {
		return -1
	}
	in.Start, in.Size = int(info.Placement.Start), int(info.Placement.Size)
	return int(info.ProfileId)
}

// profileByID asks the driver for the name of the profile with this ID.
func profileByID(l *Library, parent nvml.Device, id int) string {
	if id < 0 || !l.has("nvmlDeviceGetGpuInstanceProfileInfoV") {
		return ""
	}
	for profile := range nvml.GPU_INSTANCE_PROFILE_COUNT {
		info, ret := parent.GetGpuInstanceProfileInfoV(profile).V2()
		if ret == nvml.SUCCESS && int(info.Id) == id {
			return profileName(text(info.Name[:]))
		}
	}
	return ""
}

// profileOfName reads the profile out of a name such as
// "NVIDIA A100-SXM4-40GB MIG 1g.5gb". A compute instance that is smaller than its
// GPU instance is named "1c.3g.20gb": the part before the GPU instance goes.
func profileOfName(device nvml.Device) string {
	name, ret := device.GetName()
	if ret != nvml.SUCCESS {
		return ""
	}
	_, profile, ok := strings.Cut(name, " MIG ")
	if !ok {
		return ""
	}
	return profileName(profile)
}

// profileName strips what surrounds a profile: "MIG 1g.5gb" and "1c.3g.20gb".
func profileName(s string) string {
	s = strings.TrimPrefix(strings.TrimSpace(s), "MIG ")
	if head, rest, ok := strings.Cut(s, "."); ok && strings.HasSuffix(head, "c") {
		s = rest
	}
	return s
}

// profileOfSize makes the name as NVIDIA does: slices, and the memory in eighths of
// the GPU's. It cannot tell profiles with media engines from those without.
func profileOfSize(l *Library, parent, device nvml.Device) string {
	if !l.has("nvmlDeviceGetAttributes_v2") {
		return ""
	}
	attributes, ret := device.GetAttributes()
	if ret != nvml.SUCCESS {
		return ""
	}
	memory, ret := parent.GetMemoryInfo()
	if ret != nvml.SUCCESS || memory.Total == 0 {
		return ""
	}
	const gib = 1 << 30
	eighths := math.Ceil(8 * float64(attributes.MemorySizeMB) * mib / float64(memory.Total))
	total := math.Ceil(float64(memory.Total) / gib)
	return fmt.Sprintf("%dg.%dgb", attributes.GpuInstanceSliceCount, int(math.Round(eighths/8*total)))
}

// text is a C string in a fixed buffer.
func text[T ~int8 | ~uint8](buffer []T) string {
	var b strings.Builder
	for _, c := range buffer {
		if c == 0 {
			break
		}
		b.WriteByte(byte(c))
	}
	return b.String()
}
