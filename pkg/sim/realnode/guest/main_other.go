//go:build !linux

package guest

import (
	"fmt"
	"os"

	"k8s.io/utils/clock"
)

// Main says that there are no machines on this system.
func Main(clock.Clock, []string) int {
	fmt.Fprintln(os.Stderr, "Error: a real node needs Linux")
	return 1
}
