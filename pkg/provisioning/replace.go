package provisioning

import (
	"context"
	"fmt"

	"github.com/awslabs/operatorpkg/controller"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	stock "sigs.k8s.io/karpenter/pkg/controllers/provisioning"
	"sigs.k8s.io/karpenter/pkg/controllers/state"
	"sigs.k8s.io/karpenter/pkg/events"
	"sigs.k8s.io/karpenter/pkg/operator/options"
)

// Dependencies are what Replace needs besides the controllers.
type Dependencies struct {
	Client   client.Client
	Cluster  *state.Cluster
	Clock    clock.Clock
	Recorder events.Recorder
	// Ledger is shared with Guard, so that both count the same launches.
	Ledger *Ledger
	// Holds receives what is held back and why; nil if nobody asks.
	Holds *Holds
	// Spaces receives where the space of capacity buffers stands; nil if nobody asks.
	Spaces *Spaces
}

// Replace takes Karpenter's provisioner and its triggers out of the controllers that
// Karpenter constructs, and puts ours in their places under the same names. The
// CloudProvider that these controllers hold must come from Guard. It is an error if
// one of the three is not there exactly once: an upgrade has changed what they are.
func Replace(ctx context.Context, controllers []controller.Controller, d Dependencies) ([]controller.Controller, error) {
	var inner *stock.Provisioner
	for _, c := range controllers {
		if p, ok := c.(*stock.Provisioner); ok {
			inner = p
		}
	}
	if inner == nil {
		return nil, fmt.Errorf("replacing the provisioner, not among the %d controllers of Karpenter", len(controllers))
	}
	ours := NewProvisioner(inner, &RightSizer{Client: d.Client, Cluster: d.Cluster, Clock: d.Clock, Ledger: d.Ledger, Spaces: d.Spaces}, d.Recorder, d.Holds)
	out, found := make([]controller.Controller, 0, len(controllers)+3), map[string]int{}
	for _, c := range controllers {
		switch c.(type) {
		case *stock.Provisioner:
			c = ours
		case *stock.PodController:
			c = &PodTrigger{provisioner: ours, cluster: d.Cluster}
		case *stock.NodeController:
			c = &NodeTrigger{provisioner: ours, spaces: d.Spaces}
		default:
			out = append(out, c)
			continue
		}
		found[fmt.Sprintf("%T", c)]++
		out = append(out, c)
	}
	for _, c := range []controller.Controller{ours, &PodTrigger{}, &NodeTrigger{}} {
		if n := found[fmt.Sprintf("%T", c)]; n != 1 {
			return nil, fmt.Errorf("replacing the provisioner, %d controllers became %T, want 1", n, c)
		}
	}
	out = append(out, &LaunchTrigger{client: d.Client, provisioner: ours})
	if options.FromContext(ctx).FeatureGates.CapacityBuffer {
		out = append(out, &BufferTrigger{client: d.Client, provisioner: ours}, &UseTrigger{provisioner: ours, spaces: d.Spaces})
	}
	return out, nil
}
