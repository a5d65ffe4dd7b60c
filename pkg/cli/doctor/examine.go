package doctor

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/samber/lo"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/apis/v1alpha1"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/cli/manifest"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/cloudprovider/catalogprovider"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/cloudprovider/pools"
)

// Options of an examination.
type Options struct {
	// Cloud says what is assumed of it, with the catalogue.
	Cloud catalogprovider.Options
	// Now is the time by which agents are silent.
	Now time.Time
}

// Examine runs all checks. It is deterministic for equal facts.
func Examine(ctx context.Context, f *Facts, o Options) (*Report, error) {
	e := &examination{Facts: f, Options: o, report: &Report{Findings: []Finding{}, Examined: f.counts(), Notes: []string{}}}
	e.controller = findController(f.Deployments)
	e.gpuPools = slices.SortedFunc(slices.Values(f.GPUPools), func(a, b *v1alpha1.GPUPool) int { return strings.Compare(a.Name, b.Name) })
	e.nodePools = slices.SortedFunc(slices.Values(f.NodePools), func(a, b *karpv1.NodePool) int { return strings.Compare(a.Name, b.Name) })
	for _, kind := range slices.Sorted(maps.Keys(f.Unread)) {
		e.note(fmt.Sprintf("%s could not be read, so that what follows from them is not examined: %s", kind, f.Unread[kind]))
	}
	e.objects()
	if err := e.resolve(); err != nil {
		return nil, err
	}
	if err := e.offer(ctx); err != nil {
		return nil, err
	}
	for _, check := range []func(){
		e.definitions, e.deployment, e.gates, e.membership,
		e.nodeClasses, e.instanceTypes, e.budgets,
		e.tolerations, e.agents,
		e.operator, e.devicePlugins, e.configMaps,
		e.workloads,
	} {
		check()
	}
	e.report.arrange()
	return e.report, nil
}

// examination is one report in the making.
type examination struct {
	*Facts
	Options
	report     *Report
	controller *controller
	// gpuPools and nodePools are sorted by name.
	gpuPools  []*v1alpha1.GPUPool
	nodePools []*karpv1.NodePool
	// pools are the valid GPUPools that NodePools have joined, by name.
	pools []*pools.Pool
	store *pools.Store
	offers
}

// add adds a finding about an object.
func (e *examination) add(f Finding) {
	f.From = e.From[f.Object]
	e.report.Findings = append(e.report.Findings, f)
}

func (e *examination) note(text string) {
	if !slices.Contains(e.report.Notes, text) {
		e.report.Notes = append(e.report.Notes, text)
	}
}

// members are the NodePools that have joined a pool.
func (e *examination) members(pool string) []*karpv1.NodePool {
	return lo.Filter(e.nodePools, func(np *karpv1.NodePool, _ int) bool { return np.Labels[v1alpha1.PoolLabelKey] == pool })
}

// objects tells of objects that an API server or the controller refuses.
func (e *examination) objects() {
	for _, i := range e.Invalid {
		f := Finding{Severity: Error, Reason: ReasonObjectInvalid, Object: i.Object, Message: "it would be refused: " + i.Err.Error(), Fix: "correct the manifest"}
		if i.Old {
			file, _, _ := strings.Cut(i.From, ", document ")
			f.Fix, f.Command = "", "kubectl gpupool convert -f "+lo.Ternary(file == "standard input", manifest.StandardInput, file)
		}
		f.From = i.From
		e.report.Findings = append(e.report.Findings, f)
	}
	for _, p := range e.gpuPools {
		if err := p.RuntimeValidate(pools.Names{}); err != nil {
			e.add(Finding{Severity: Error, Reason: ReasonObjectInvalid, Object: title("GPUPool", p),
				Message: "its NodePools behave as plain Karpenter until the spec is corrected: " + err.Error(), Command: "kubectl edit gpupool " + p.Name})
		}
	}
}

// resolve resolves the pools that are valid and have members, as the controller does.
func (e *examination) resolve() error {
	evaluated := map[string]string{}
	for _, np := range e.nodePools {
		evaluated[np.Name] = np.Labels[v1alpha1.PoolLabelKey]
	}
	for _, p := range e.gpuPools {
		names := lo.Map(e.members(p.Name), func(np *karpv1.NodePool, _ int) string { return np.Name })
		if len(names) == 0 || p.RuntimeValidate(pools.Names{}) != nil {
			continue
		}
		pool, err := pools.Resolve(pools.Request{GPUPool: p, NodePools: names, Catalog: e.Cloud.Catalog})
		if err != nil {
			return err
		}
		e.pools = append(e.pools, pool)
	}
	e.store = pools.NewStore()
	e.store.Swap(e.pools, evaluated)
	return nil
}
