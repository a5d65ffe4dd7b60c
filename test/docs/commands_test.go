package docs_test

import (
	"bytes"
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	clock "k8s.io/utils/clock/testing"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/cli"
)

// needs is what a block of commands needs, by the word after "console".
type needs string

const (
	nothing needs = ""        // this repository
	cluster needs = "cluster" // a Kubernetes cluster
	cloud   needs = "cloud"   // a cloud account, a registry or an engine that this repository does not bring
)

// command is one command that a page shows.
type command struct {
	page, section string
	needs         needs
	line          string
	// output is what the block shows after it, up to the next command.
	output string
}

var (
	fence   = regexp.MustCompile("^( *)```(.*)$")
	heading = regexp.MustCompile(`^## (.*)$`)
)

// pages are the Markdown files for users.
func pages(t *testing.T) (found []string) {
	t.Helper()
	found = []string{"README.md"}
	for _, dir := range []string{"docs", "charts"} {
		err := filepath.WalkDir(filepath.Join(root, dir), func(path string, d fs.DirEntry, err error) error {
			if err == nil && !d.IsDir() && filepath.Ext(path) == ".md" {
				rel, relErr := filepath.Rel(root, path)
				found = append(found, filepath.ToSlash(rel))
				return relErr
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return found
}

// commands reads the blocks whose language begins with console.
func commands(t *testing.T, page string) (found []command) {
	t.Helper()
	section, indent, block := "", "", (*command)(nil)
	open := false
	for line := range strings.SplitSeq(read(t, page), "\n") {
		if m := fence.FindStringSubmatch(line); m != nil {
			language := strings.Fields(m[2])
			open = !open && len(language) > 0 && language[0] == "console"
			indent, block = m[1], nil
			if open {
				block = &command{page: page, section: section, needs: needs(strings.Join(language[1:], " "))}
			}
			continue
		}
		if m := heading.FindStringSubmatch(line); m != nil && !open {
			section = m[1]
		}
		if !open {
			continue
		}
		line = strings.TrimPrefix(line, indent)
		switch text, is := strings.CutPrefix(line, "$ "); {
		case is:
			c := *block
			c.line = text
			found = append(found, c)
		case len(found) == 0:
			t.Errorf("%s: a console block begins with %q, which is no command: they begin with \"$ \"", page, line)
		case continues(found[len(found)-1].line):
			found[len(found)-1].line += "\n" + line
		default:
			found[len(found)-1].output += line + "\n"
		}
	}
	return found
}

// continues tells whether the next line belongs to a command.
func continues(line string) bool {
	return strings.HasSuffix(line, "\\") || strings.HasPrefix(line, "for ") && !strings.HasSuffix(line, "done; done") && !strings.HasSuffix(line, "; done")
}

func TestCommandsNeedWhatTheySay(t *testing.T) {
	local := 0
	for _, page := range pages(t) {
		for _, c := range commands(t, page) {
			paths(t, c)
			switch c.needs {
			case nothing:
				local++
				checkLocal(t, c)
			case cluster, cloud:
			default:
				t.Errorf("%s: a block needs %q, which docs/README.md does not explain", page, c.needs)
			}
		}
	}
	if local < 20 {
		t.Errorf("found %d commands that need nothing, the test has lost some", local)
	}
}

// paths holds every path of the repository that a command names to exist.
func paths(t *testing.T, c command) {
	t.Helper()
	for _, m := range regexp.MustCompile(`(?:^|[\s=])(?:\./)?((?:charts|cmd|docs|examples|pkg|test)/[^\s"]*)`).FindAllStringSubmatch(c.line, -1) {
		if _, err := os.Stat(filepath.Join(root, strings.TrimSuffix(m[1], "/..."))); err != nil {
			t.Errorf("%s: %q names %s, which does not exist", c.page, c.line, m[1])
		}
	}
}

// checkLocal runs what is quick and checks of the rest that it exists. What it does not know is
// an error: a command that nobody runs goes wrong unnoticed.
func checkLocal(t *testing.T, c command) {
	t.Helper()
	words := strings.Fields(c.line)
	switch {
	case words[0] == "make":
		targets(t, c, words[1:])
	case words[0] == "bin/sandbox":
		verbs := regexp.MustCompile(`Use: +"([a-z]+)`).FindAllStringSubmatch(readDir(t, "cmd/sandbox/app"), -1)
		if !slices.ContainsFunc(verbs, func(m []string) bool { return m[1] == words[1] }) {
			t.Errorf("%s: %q: bin/sandbox has no verb %s", c.page, c.line, words[1])
		}
	case words[0] == "bin/kubectl-gpupool", strings.HasPrefix(c.line, "kubectl gpupool "):
		runPlugin(t, c)
	case strings.HasPrefix(c.line, "go test ./"), strings.HasPrefix(c.line, "for ") && strings.Contains(c.line, "go build"):
		// paths has looked at the packages.
	case strings.HasPrefix(c.line, sandboxed):
		// TestCommandsOnACluster runs it.
	default:
		t.Errorf("%s: no test runs %q: teach test/docs to, or say what the block needs", c.page, c.line)
	}
}

func targets(t *testing.T, c command, words []string) {
	t.Helper()
	makefile := read(t, "Makefile")
	for _, target := range words {
		if !strings.Contains(target, "=") && !regexp.MustCompile("(?m)^"+regexp.QuoteMeta(target)+":").MatchString(makefile) {
			t.Errorf("%s: %q: the Makefile has no target %s", c.page, c.line, target)
		}
	}
}

// pluginPage is tested by pkg/cli, which also rewrites its outputs.
const pluginPage = "docs/reference/kubectl-gpupool.md"

// runPlugin runs the plugin in the process, and compares what the page shows.
func runPlugin(t *testing.T, c command) {
	t.Helper()
	if c.page == pluginPage {
		return
	}
	words := strings.Fields(c.line)
	args := words[1:]
	if words[0] == "kubectl" {
		args = words[2:]
	}
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chdir(root); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := os.Chdir(here); err != nil {
			t.Fatal(err)
		}
	}()
	var out, errs bytes.Buffer
	root := cli.New(cli.Streams{In: strings.NewReader(""), Out: &out, Err: &errs}, clock.NewFakeClock(time.Date(2026, 1, 5, 9, 0, 0, 0, time.UTC)))
	root.SetArgs(args)
	if err := root.ExecuteContext(context.Background()); err != nil {
		t.Errorf("%s: %q: %v\n%s", c.page, c.line, err, errs.String())
	}
	if c.output == "" {
		return
	}
	if diff := cmp.Diff(c.output, out.String()); diff != "" {
		t.Errorf("%s: %q (-page +output):\n%s", c.page, c.line, diff)
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(root, path))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// readDir joins the Go files of a directory.
func readDir(t *testing.T, dir string) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root, dir, "*.go"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no Go files in %s, %v", dir, err)
	}
	var all strings.Builder
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		all.Write(data)
	}
	return all.String()
}
