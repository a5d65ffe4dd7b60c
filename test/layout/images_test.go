package layout_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"gopkg.in/yaml.v3"
)

var dockerfiles = []string{"cmd/controller/Dockerfile", "cmd/agent/Dockerfile"}

// group returns what the first group of a pattern matches in a file, or fails.
func group(t *testing.T, file, pattern string) string {
	t.Helper()
	m := regexp.MustCompile(pattern).FindStringSubmatch(read(t, file))
	if m == nil {
		t.Fatalf("%s has nothing like %s", file, pattern)
	}
	return m[1]
}

// koConfig is as much of .ko.yaml as the test looks at.
type koConfig struct {
	DefaultBaseImage string   `yaml:"defaultBaseImage"`
	DefaultPlatforms []string `yaml:"defaultPlatforms"`
	Builds           []struct {
		Main    string   `yaml:"main"`
		Env     []string `yaml:"env"`
		LDFlags []string `yaml:"ldflags"`
	} `yaml:"builds"`
}

func ko(t *testing.T) koConfig {
	t.Helper()
	var c koConfig
	if err := yaml.Unmarshal([]byte(read(t, ".ko.yaml")), &c); err != nil {
		t.Fatal(err)
	}
	if len(c.Builds) != 1 || c.Builds[0].Main != "./cmd/controller" {
		t.Fatalf("ko builds %+v, not the controller alone", c.Builds)
	}
	return c
}

func TestImagesAreBuiltWithTheGoOfTheMakefile(t *testing.T) {
	want := group(t, "Makefile", `GOTOOLCHAIN := go([0-9.]+)`)
	for _, f := range dockerfiles {
		if got := group(t, f, `golang:([0-9.]+)-`); got != want {
			t.Errorf("%s builds with Go %s, make with %s", f, got, want)
		}
	}
	if env := ko(t).Builds[0].Env; !slices.Contains(env, "GOTOOLCHAIN=go"+want) || !slices.Contains(env, "CGO_ENABLED=0") {
		t.Errorf(".ko.yaml builds with %v, make with Go %s and without cgo", env, want)
	}
}

func TestImagesAreForThePlatformsOfTheMakefile(t *testing.T) {
	want := strings.Split(group(t, "Makefile", `PLATFORMS +\?= (\S+)`), ",")
	if got := ko(t).DefaultPlatforms; !slices.Equal(got, want) {
		t.Errorf(".ko.yaml has %v, the Makefile %v", got, want)
	}
	cases := group(t, "cmd/agent/Dockerfile", `case "\$TARGETARCH" in (.*) \*\)`)
	for _, p := range want {
		if arch := strings.TrimPrefix(p, "linux/"); !strings.Contains(cases, arch+") triple=") {
			t.Errorf("cmd/agent/Dockerfile knows no compiler for %s", arch)
		}
	}
}

func TestControllerImageKnowsItsVersion(t *testing.T) {
	variable := group(t, "Makefile", `-X (\S+)=\$\(KARPENTER\)`)
	if got := group(t, "cmd/controller/Dockerfile", `-X (\S+)=\$\{VERSION\}`); got != variable {
		t.Errorf("cmd/controller/Dockerfile sets %s, the Makefile %s", got, variable)
	}
	if flags := strings.Join(ko(t).Builds[0].LDFlags, " "); !strings.Contains(flags, "-X "+variable+"=") {
		t.Errorf(".ko.yaml sets %s, not %s", flags, variable)
	}
}

// The agent opens a library of the host's: a base without a C library would not even start it.
func TestImageBasesFitWhatTheyCarry(t *testing.T) {
	static, glibc := group(t, "cmd/controller/Dockerfile", `ARG BASE=(\S+)`), group(t, "cmd/agent/Dockerfile", `ARG BASE=(\S+)`)
	if ko(t).DefaultBaseImage != static {
		t.Errorf("ko takes %s, cmd/controller/Dockerfile %s", ko(t).DefaultBaseImage, static)
	}
	if !strings.Contains(static, "/static-") || !strings.Contains(glibc, "/base-nossl-") {
		t.Errorf("the bases are %s and %s", static, glibc)
	}
	for file, cgo := range map[string]string{"cmd/controller/Dockerfile": "CGO_ENABLED=0", "cmd/agent/Dockerfile": "CGO_ENABLED=1"} {
		if !strings.Contains(read(t, file), cgo) {
			t.Errorf("%s lacks %s", file, cgo)
		}
	}
}

func TestImagesRunAsTheUserOfTheCharts(t *testing.T) {
	for dockerfile, template := range map[string]string{
		"cmd/controller/Dockerfile": "charts/karpenter-gpu/templates/deployment.yaml", "cmd/agent/Dockerfile": "charts/gpu-agent/templates/_driver.tpl",
	} {
		want := group(t, template, `runAsUser: ([1-9][0-9]*)`)
		if got := group(t, dockerfile, `(?m)^USER ([0-9]+):`); got != want {
			t.Errorf("%s runs as %s, %s as %s", dockerfile, got, template, want)
		}
	}
}

// What a Dockerfile copies exists and is let through, and is all that the programs are made of.
func TestImagesAreBuiltFromWhatTheyCopy(t *testing.T) {
	context := strings.Fields(read(t, ".dockerignore"))
	for _, f := range dockerfiles {
		copied := []string{}
		for _, m := range regexp.MustCompile(`(?m)^COPY ([^-].*) \S+$`).FindAllStringSubmatch(read(t, f), -1) {
			copied = append(copied, strings.Fields(m[1])...)
		}
		if want := []string{"go.mod", "go.sum", "cmd", "pkg"}; !slices.Equal(copied, want) {
			t.Errorf("%s copies %v, want %v", f, copied, want)
		}
		for _, path := range copied {
			if _, err := os.Stat(filepath.Join(root, path)); err != nil {
				t.Errorf("%s copies %s, which does not exist", f, path)
			}
			if !slices.Contains(context, "!"+path) {
				t.Errorf("%s copies %s, which .dockerignore keeps back", f, path)
			}
		}
	}
	for file, imports := range goFiles(t, false) {
		if !strings.HasPrefix(file, "cmd/") && !strings.HasPrefix(file, "pkg/") {
			continue
		}
		for _, path := range imports {
			if local, ok := strings.CutPrefix(path, module); ok && !strings.HasPrefix(local, "cmd/") && !strings.HasPrefix(local, "pkg/") {
				t.Errorf("%s imports %s, which no image has", file, local)
			}
		}
	}
}
