package provisioning

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	scheduler "sigs.k8s.io/karpenter/pkg/controllers/provisioning/scheduling"
	"sigs.k8s.io/karpenter/pkg/controllers/state"
)

const (
	// searchTime bounds the search of one round for cheaper nodes, formTime what it
	// may take in all. Stock gives its own scheduling a minute.
	searchTime = 10 * time.Second
	formTime   = 30 * time.Second
)

// RightSizer turns stock's decision into the one that is launched.
type RightSizer struct {
	// Client reads; it may be a cache.
	Client client.Client
	// Cluster is the state that stock decided on.
	Cluster *state.Cluster
	// Clock measures the time for the search.
	Clock clock.Clock
	// Ledger knows what pools use of their limits, and how many GPUs types have.
	Ledger *Ledger
	// Spaces learns where capacity buffers stand; nil if nobody asks.
	Spaces *Spaces
	// Iterations of the search; zero is the default of pkg/gpu/fleet.
	Iterations int
}

// Decision is what is to be launched.
type Decision struct {
	// Claims replace those of the scheduler's results. Claims of NodePools without a
	// pool are the scheduler's own.
	Claims []*scheduler.NodeClaim
	// Refused are the pods that a rule of their pool keeps waiting, by namespace and
	// name.
	Refused []RefusedPod
	// Saved is by how much the claims are cheaper per hour than stock's.
	Saved float64
}

// RefusedPod is a pod and why it waits.
type RefusedPod struct {
	Pod     *corev1.Pod
	Refusal Refusal
}

// Decide applies the rules of the pools to the scheduler's results and packs the
// pods of their new NodeClaims anew. It changes nothing of results. When anything
// fails, a panic included, what stock decided stands.
func (s *RightSizer) Decide(ctx context.Context, results scheduler.Results, seen *Catalogue) (out Decision) {
	out.Claims = results.NewNodeClaims
	if len(results.NewNodeClaims) == 0 {
		return out
	}
	start := s.Clock.Now()
	defer func() {
		if p := recover(); p != nil {
			decisions.Inc(map[string]string{poolLabel: "", outcomeLabel: OutcomeError})
			log.FromContext(ctx).Error(fmt.Errorf("recovered: %v", p), "keeping the stock decision, right-sizing panicked")
			out = Decision{Claims: results.NewNodeClaims}
		}
	}()
	r, err := s.newRound(ctx, results, seen)
	if err == nil && r.touched() {
		err = r.decide(ctx, &out)
		planSeconds.Observe(s.Clock.Since(start).Seconds(), map[string]string{})
	}
	if err != nil {
		decisions.Inc(map[string]string{poolLabel: "", outcomeLabel: OutcomeError})
		log.FromContext(ctx).V(1).Info("keeping the stock decision, right-sizing failed", "error", err.Error())
		return Decision{Claims: results.NewNodeClaims}
	}
	return out
}

// gpus are the Ledger's, so that one catalogue counts them everywhere.
func (s *RightSizer) gpus() GPUs {
	if s.Ledger == nil {
		return GPUs{}
	}
	return s.Ledger.gpus
}

func (r *round) touched() bool {
	return lo.SomeBy(r.entries, func(e *entry) bool { return e.template != nil })
}

func (r *round) late() bool { return r.Clock.Since(r.start) > searchTime }

func (r *round) decide(ctx context.Context, out *Decision) error {
	if err := r.readUsage(ctx); err != nil {
		return err
	}
	disagrees := r.agrees()
	r.obey()
	ctx, cancel := context.WithTimeout(ctx, formTime)
	defer cancel()
	for _, g := range r.groups() {
		err := disagrees
		if err == nil {
			if err = r.repack(ctx, g); err != nil {
				if part := g.uncoupled(ignoresPreferences(ctx)); part != nil {
					err = r.repack(ctx, part)
				}
			}
		}
		r.report(ctx, g, err)
	}
	r.settle(out)
	return nil
}

func (r *round) report(ctx context.Context, g *group, err error) {
	outcome := OutcomeCheaper
	switch {
	case errors.Is(err, errNotCheaper):
		outcome = OutcomeStock
	case errors.Is(err, context.DeadlineExceeded):
		outcome = OutcomeTimeout
	case err != nil:
		outcome = OutcomeError
	}
	decisions.Inc(map[string]string{poolLabel: g.pool.Name, outcomeLabel: outcome})
	if err != nil {
		log.FromContext(ctx).V(1).Info("keeping the stock decision", "GPUPool", klog.KObj(g.pool.GPUPool), "nodeclaims", len(g.entries), "error", err.Error())
	}
}

// settle admits what the limits have room for and lists the rest.
func (r *round) settle(out *Decision) {
	out.Claims, out.Saved = nil, r.saved
	var used []*pool
	for _, e := range r.entries {
		if e.template == nil {
			out.Claims = append(out.Claims, e.claim)
			continue
		}
		if !slices.Contains(used, e.template.pool) {
			used = append(used, e.template.pool)
		}
	}
	for _, p := range used {
		kept, refusedEntries := r.admit(p, lo.Filter(r.entries, func(e *entry, _ int) bool { return e.template != nil && e.template.pool == p }), nil)
		kept, overpriced := r.withinWarmPrices(p, kept)
		refusedEntries = append(refusedEntries, overpriced...)
		for _, e := range kept {
			out.Claims = append(out.Claims, e.claim)
		}
		for _, e := range refusedEntries {
			for _, pod := range e.claim.Pods {
				r.refuse(pod, r.alone(e, pod))
			}
		}
	}
	for _, f := range r.refusals {
		out.Refused = append(out.Refused, RefusedPod{Pod: f.pod, Refusal: f.refusal})
	}
	slices.SortFunc(out.Refused, func(a, b RefusedPod) int {
		return strings.Compare(client.ObjectKeyFromObject(a.Pod).String(), client.ObjectKeyFromObject(b.Pod).String())
	})
}
