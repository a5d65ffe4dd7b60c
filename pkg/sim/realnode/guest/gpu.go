package guest

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Where the machine's GPUs are described, below SharedDir.
const (
	// GPUDir holds DriverFile, NVMLFile and the fake library.
	GPUDir = "gpu"
	// DriverFile is a Driver as JSON.
	DriverFile = "driver.json"
	// NVMLFile is the configuration of the fake library.
	NVMLFile = "nvml.conf"
	// LibraryFile is the fake library.
	LibraryFile = "libnvidia-ml.so.1"
	// NVMLEnv tells the fake library where its configuration is.
	NVMLEnv = "KPGPU_FAKE_NVML"

	nvidiaMajor  = 195
	controlMinor = 255
)

// Driver is what NVIDIA's container runtime finds out about the machine before it makes a
// container.
type Driver struct {
	// Loaded says that the kernel module is.
	Loaded bool `json:"loaded"`
	// Minors are the GPUs' device nodes, by the IDs under which they are asked for.
	Minors map[string]int `json:"minors"`
	// LibraryDir is where the library goes in a container.
	LibraryDir string `json:"libraryDir"`
}

func readDriver(path string) (d Driver, err error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return d, nil
	}
	if err != nil {
		return d, fmt.Errorf("reading the driver's state, %w", err)
	}
	if err := json.Unmarshal(data, &d); err != nil {
		return d, fmt.Errorf("reading the driver's state, %w", err)
	}
	return d, nil
}

// errDriverNotLoaded says what NVIDIA's runtime says, in its words.
var errDriverNotLoaded = errors.New("nvidia-container-cli: initialization error: nvml error: driver not loaded")

// bundle is the part of an OCI runtime specification that is changed; the rest is kept as it is.
type bundle map[string]any

// object returns the object under a key, which it makes where it is missing.
func (b bundle) object(key string) bundle {
	if inner, ok := b[key].(map[string]any); ok {
		return inner
	}
	inner := map[string]any{}
	b[key] = inner
	return inner
}

func (b bundle) add(key string, values ...any) {
	list, _ := b[key].([]any)
	b[key] = append(list, values...)
}

// hook lets the boot ID be the machine's in every container: a container has a /proc of its
// own, over whose files no OCI runtime binds others.
func (b bundle) hook() {
	b.object("hooks").add("createContainer", map[string]any{
		"path": filepath.Join(ProgramDir, programName),
		"args": []any{programName, "boot-id"},
	})
}

// visible returns what the container asks for; nil where it asks for no GPU.
func (b bundle) visible() []string {
	env, _ := b.object("process")["env"].([]any)
	for _, e := range slices.Backward(env) {
		text, _ := e.(string)
		if value, ok := strings.CutPrefix(text, "NVIDIA_VISIBLE_DEVICES="); ok {
			if value == "" || value == "void" {
				return nil
			}
			return strings.Split(value, ",")
		}
	}
	return nil
}

// inject gives a container the devices that it asks for, and the library.
func (b bundle) inject(d Driver, shared string) error {
	asked := b.visible()
	if asked == nil {
		return nil
	}
	if !d.Loaded {
		return errDriverNotLoaded
	}
	minors, err := d.minors(asked)
	if err != nil {
		return err
	}
	b.device("nvidiactl", controlMinor)
	for _, minor := range minors {
		b.device("nvidia"+strconv.Itoa(minor), minor)
	}
	gpu := filepath.Join(shared, GPUDir)
	b.add("mounts",
		bindMount(filepath.Join(gpu, LibraryFile), filepath.Join(d.LibraryDir, LibraryFile)),
		bindMount(gpu, gpu)) // the directory: its files are replaced by renaming
	b.object("process").add("env", NVMLEnv+"="+filepath.Join(gpu, NVMLFile))
	return nil
}

func bindMount(source, destination string) map[string]any {
	return map[string]any{"source": source, "destination": destination, "type": "bind", "options": []any{"rbind", "ro", "nosuid", "nodev"}}
}

// minors resolves "all", "none", indices and UUIDs.
func (d Driver) minors(asked []string) ([]int, error) {
	var out []int
	for _, name := range asked {
		switch minor, known := d.Minors[name]; {
		case known:
			out = append(out, minor)
		case name == "all":
			for _, minor := range d.Minors {
				out = append(out, minor)
			}
		case name != "none":
			return nil, fmt.Errorf("nvidia-container-cli: device error: %s: unknown device", name)
		}
	}
	slices.Sort(out)
	return slices.Compact(out), nil
}

func (b bundle) device(name string, minor int) {
	linux := b.object("linux")
	linux.add("devices", map[string]any{"path": "/dev/" + name, "type": "c", "major": nvidiaMajor, "minor": minor, "fileMode": 0o666, "uid": 0, "gid": 0})
	linux.object("resources").add("devices", map[string]any{"allow": true, "type": "c", "major": nvidiaMajor, "minor": minor, "access": "rw"})
}
