package provisioning

import (
	"context"

	"github.com/awslabs/operatorpkg/reconciler"
	"github.com/awslabs/operatorpkg/singleton"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	controllerruntime "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	stock "sigs.k8s.io/karpenter/pkg/controllers/provisioning"
	scheduler "sigs.k8s.io/karpenter/pkg/controllers/provisioning/scheduling"
	"sigs.k8s.io/karpenter/pkg/events"
	"sigs.k8s.io/karpenter/pkg/metrics"
	"sigs.k8s.io/karpenter/pkg/operator/injection"
	"sigs.k8s.io/karpenter/pkg/operator/options"
)

// Provisioner is the controller "provisioner": stock's, with the RightSizer between
// its decision and its launches. Everything else that holds the stock Provisioner,
// disruption above all, keeps it.
type Provisioner struct {
	*stock.Provisioner
	sizer    *RightSizer
	recorder events.Recorder
	holds    *Holds
	batcher  *stock.Batcher[types.UID]
	counted  counted
}

var _ singleton.Reconciler = (*Provisioner)(nil)

// NewProvisioner wraps a stock Provisioner. holds receives what it refuses, nil if
// nobody asks.
func NewProvisioner(inner *stock.Provisioner, sizer *RightSizer, recorder events.Recorder, holds *Holds) *Provisioner {
	return &Provisioner{Provisioner: inner, sizer: sizer, recorder: recorder, holds: holds, batcher: stock.NewBatcher[types.UID](sizer.Clock)}
}

// Trigger wakes the provisioner, once for each object within a batch.
func (p *Provisioner) Trigger(uid types.UID) { p.batcher.Trigger(uid) }

// TriggerReconcile wakes the provisioner without an object.
func (p *Provisioner) TriggerReconcile() { p.batcher.TriggerNow() }

// Register adds the controller to the manager.
func (p *Provisioner) Register(_ context.Context, m manager.Manager) error {
	return controllerruntime.NewControllerManagedBy(m).
		Named(p.Name()).
		WatchesRawSource(singleton.Source()).
		Complete(singleton.AsReconciler(p))
}

// Reconcile waits for a batch of triggers and provisions for it. Like stock, it does
// nothing until the cluster state is in step, which it is not while a NodeClaim waits
// to be launched: rounds never decide beside launches whose outcome is open.
func (p *Provisioner) Reconcile(ctx context.Context) (reconciler.Result, error) {
	ctx = injection.WithControllerName(ctx, p.Name())
	again := reconciler.Result{RequeueAfter: singleton.RequeueImmediately}
	if !p.batcher.Wait(ctx) || !p.sizer.Cluster.Synced(ctx) {
		return again, nil
	}
	began := p.sizer.Clock.Now()
	results, err := p.Provision(ctx)
	if err != nil {
		return reconciler.Result{}, err
	}
	if options.FromContext(ctx).FeatureGates.CapacityBuffer {
		if err := p.updateBuffers(ctx, results); err != nil {
			log.FromContext(ctx).Error(err, "updating CapacityBuffer provisioning status")
		}
		p.counted.note(began)
	}
	if len(results.NewNodeClaims) == 0 {
		return again, nil
	}
	return again, p.launch(ctx, results.NewNodeClaims)
}

// Provision decides: stock first, then the pools. Nothing is launched.
func (p *Provisioner) Provision(ctx context.Context) (scheduler.Results, error) {
	watched, seen := Watch(ctx)
	results, err := p.Schedule(watched)
	if err != nil {
		return results, err
	}
	decision := p.sizer.Decide(ctx, results, seen)
	p.holds.note(decision.Refused)
	p.announce(ctx, results, decision)
	results.NewNodeClaims = decision.Claims
	if options.FromContext(ctx).FeatureGates.CapacityBuffer {
		p.noteSpaces(ctx, &results, decision, seen)
	}
	return results, nil
}

// announce corrects what stock's Schedule has already noted about pods whose
// placement is another one now, and tells the owners of pods that have to wait.
func (p *Provisioner) announce(ctx context.Context, results scheduler.Results, d Decision) {
	was := map[types.UID]string{}
	for _, c := range results.NewNodeClaims {
		for _, pod := range c.Pods {
			was[pod.UID] = c.NodePoolName
		}
	}
	moved, waiting := map[string][]*corev1.Pod{}, map[*corev1.Pod]error{}
	for _, c := range d.Claims {
		for _, pod := range c.Pods {
			if was[pod.UID] != c.NodePoolName && !stock.IsVirtualPod(pod) {
				moved[c.NodePoolName] = append(moved[c.NodePoolName], pod)
			}
		}
	}
	for _, r := range d.Refused {
		refusedPods.Inc(map[string]string{poolLabel: r.Refusal.Pool, reasonLabel: string(r.Refusal.Kind)})
		if stock.IsVirtualPod(r.Pod) {
			continue
		}
		waiting[r.Pod] = r.Refusal
		p.recorder.Publish(RefusedEvent(r.Pod, r.Refusal))
	}
	if len(moved)+len(waiting) > 0 {
		p.sizer.Cluster.MarkPodSchedulingDecisions(ctx, waiting, moved, nil)
	}
}

// launch creates the NodeClaims as stock does and notes them in the ledger.
func (p *Provisioner) launch(ctx context.Context, claims []*scheduler.NodeClaim) error {
	names, err := p.CreateNodeClaims(ctx, claims, stock.WithReason(metrics.ProvisionedReason), stock.RecordPodNomination)
	for i, name := range names {
		if name != "" {
			created := claims[i].ToNodeClaim()
			created.Name = name
			created.CreationTimestamp.Time = p.sizer.Clock.Now()
			p.sizer.Ledger.Created(created)
		}
	}
	return err
}
