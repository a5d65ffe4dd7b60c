package cli_test

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/cli"
)

// terminal opens a pseudo-terminal: what is written to user is read from screen.
func terminal(t *testing.T) (user, screen *os.File) {
	t.Helper()
	screen, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { screen.Close() })
	if err := unix.IoctlSetPointerInt(int(screen.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(int(screen.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	user, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { user.Close() })
	return user, screen
}

// shown is what doctor writes to a file, seen from its other end.
func shown(t *testing.T, to, from *os.File) string {
	t.Helper()
	done := make(chan string)
	go func() {
		var seen []byte
		buffer := make([]byte, 4096)
		for !bytes.Contains(seen, []byte("Nothing is wrong.")) {
			n, err := from.Read(buffer)
			if err != nil {
				break
			}
			seen = append(seen, buffer[:n]...)
		}
		done <- string(seen)
	}()
	cmd := cli.New(cli.Streams{In: strings.NewReader(""), Out: to, Err: &bytes.Buffer{}}, fixed)
	cmd.SetArgs([]string{"doctor", "-f", "../../examples/doctor/good.yaml"})
	if err := cmd.Execute(); err != nil {
		t.Fatal(err)
	}
	to.Close()
	return <-done
}

// TestColorIsForTerminals: a terminal gets colors unless it, or the user, wants none; a pipe
// gets none.
func TestColorIsForTerminals(t *testing.T) {
	pipe := func(t *testing.T) (to, from *os.File) {
		from, to, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { from.Close() })
		return to, from
	}
	for name, tc := range map[string]struct {
		open        func(t *testing.T) (to, from *os.File)
		environment map[string]string
		want        bool
	}{
		"a terminal":              {terminal, map[string]string{"TERM": "xterm"}, true},
		"a terminal and NO_COLOR": {terminal, map[string]string{"TERM": "xterm", "NO_COLOR": ""}, false},
		"a dumb terminal":         {terminal, map[string]string{"TERM": "dumb"}, false},
		"a pipe":                  {pipe, map[string]string{"TERM": "xterm"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("NO_COLOR", "") // restored after the test
			os.Unsetenv("NO_COLOR")
			for k, v := range tc.environment {
				t.Setenv(k, v)
			}
			to, from := tc.open(t)
			out := shown(t, to, from)
			if got := strings.Contains(out, "\x1b["); got != tc.want || !strings.Contains(out, "Nothing is wrong.") {
				t.Errorf("color %t, want %t: %q", got, tc.want, out)
			}
		})
	}
}
