// Command guest is what runs in the machine of a real node beside Kubernetes' own programs. See
// pkg/sim/realnode/guest.
package main

import (
	"os"

	"k8s.io/utils/clock"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/sim/realnode/guest"
)

func main() { os.Exit(guest.Main(clock.RealClock{}, os.Args)) }
