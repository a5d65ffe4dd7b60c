package guest

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func parsed(t *testing.T, text string) bundle {
	t.Helper()
	var b bundle
	if err := json.Unmarshal([]byte(text), &b); err != nil {
		t.Fatal(err)
	}
	return b
}

func TestContainersGetTheGPUsThatTheyAskFor(t *testing.T) {
	driver := Driver{Loaded: true, LibraryDir: "/lib", Minors: map[string]int{"0": 0, "GPU-a": 0, "1": 1, "GPU-b": 1, "MIG-c": 1}}
	for name, tc := range map[string]struct {
		env    string
		driver Driver
		want   []string
		err    string
	}{
		"none asked":           {`"A=b"`, driver, nil, ""},
		"void":                 {`"NVIDIA_VISIBLE_DEVICES=void"`, driver, nil, ""},
		"empty":                {`"NVIDIA_VISIBLE_DEVICES="`, driver, nil, ""},
		"the library alone":    {`"NVIDIA_VISIBLE_DEVICES=none"`, driver, []string{"/dev/nvidiactl"}, ""},
		"all":                  {`"NVIDIA_VISIBLE_DEVICES=all"`, driver, []string{"/dev/nvidiactl", "/dev/nvidia0", "/dev/nvidia1"}, ""},
		"by index":             {`"NVIDIA_VISIBLE_DEVICES=1"`, driver, []string{"/dev/nvidiactl", "/dev/nvidia1"}, ""},
		"a GPU, a partition":   {`"NVIDIA_VISIBLE_DEVICES=GPU-a,MIG-c"`, driver, []string{"/dev/nvidiactl", "/dev/nvidia0", "/dev/nvidia1"}, ""},
		"the last word wins":   {`"NVIDIA_VISIBLE_DEVICES=all","NVIDIA_VISIBLE_DEVICES=GPU-b"`, driver, []string{"/dev/nvidiactl", "/dev/nvidia1"}, ""},
		"one that is not":      {`"NVIDIA_VISIBLE_DEVICES=GPU-z"`, driver, nil, "nvidia-container-cli: device error: GPU-z: unknown device"},
		"without a driver":     {`"NVIDIA_VISIBLE_DEVICES=all"`, Driver{}, nil, "nvidia-container-cli: initialization error: nvml error: driver not loaded"},
		"no driver and no GPU": {`"A=b"`, Driver{}, nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			b := parsed(t, `{"process":{"env":[`+tc.env+`]},"mounts":[{"destination":"/proc"}],"other":{"kept":1}}`)
			err := b.inject(tc.driver, "/run/machine")
			if tc.err != "" {
				if err == nil || err.Error() != tc.err {
					t.Fatalf("got %v, want %s", err, tc.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			var paths []string
			devices, _ := b.object("linux")["devices"].([]any)
			for _, d := range devices {
				paths = append(paths, d.(map[string]any)["path"].(string))
			}
			if diff := cmp.Diff(tc.want, paths); diff != "" {
				t.Error(diff)
			}
			allowed, _ := b.object("linux").object("resources")["devices"].([]any)
			if len(allowed) != len(tc.want) {
				t.Errorf("%d devices are allowed, want %d", len(allowed), len(tc.want))
			}
			mounts := len(b["mounts"].([]any))
			if want := 1 + 2*min(1, len(tc.want)); mounts != want || b.object("other")["kept"] != 1.0 {
				t.Errorf("%d mounts, want %d, in %v", mounts, want, b)
			}
		})
	}
}

func TestAmend(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "config.json")
	if err := os.WriteFile(path, []byte(`{"process":{"env":["NVIDIA_VISIBLE_DEVICES=all"]},"hooks":{"createContainer":[{"path":"/theirs"}]}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := amend(path, false); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	b := parsed(t, string(data))
	if hooks := b.object("hooks")["createContainer"].([]any); len(hooks) != 2 || hooks[1].(map[string]any)["path"] != "/machine/bin/guest" {
		t.Errorf("hooks are %v", hooks)
	}
	if _, given := b["linux"]; given {
		t.Error("an ordinary runtime gave GPUs")
	}
}

func TestCreated(t *testing.T) {
	for call, want := range map[string]string{
		"--root /r create --bundle /b --pid-file /p id": "/b",
		"create --bundle=/b id":                         "/b",
		"create -b /b id":                               "/b",
		"create id":                                     ".",
		"--root /r start id":                            "",
		"state id":                                      "",
	} {
		dir, ok := created(strings.Fields(call))
		if ok != (want != "") || ok && dir != want {
			t.Errorf("%s: got %q, %t, want %q", call, dir, ok, want)
		}
	}
}
