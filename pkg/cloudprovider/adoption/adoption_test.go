package adoption_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	corecloudprovider "sigs.k8s.io/karpenter/pkg/cloudprovider"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/cloudprovider/adoption"
)

var start = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// cloud is a provider whose Create buys an instance that List shows.
type cloud struct {
	corecloudprovider.CloudProvider
	mu        sync.Mutex
	instances []*karpv1.NodeClaim
	bought    int
	listErr   error
	createErr error
	panics    bool
	// answer, if set, is what Create waits for between the purchase and its return.
	answer chan struct{}
}

func (c *cloud) Create(_ context.Context, nc *karpv1.NodeClaim) (*karpv1.NodeClaim, error) {
	c.mu.Lock()
	c.bought++
	bought := instance(fmt.Sprintf("new-%03d", c.bought), nc.Labels[karpv1.NodePoolLabelKey], start, nil)
	c.instances = append(c.instances, bought)
	c.mu.Unlock()
	if c.answer != nil {
		<-c.answer
	}
	if c.panics {
		panic("nil map")
	}
	return bought, c.createErr
}

func (c *cloud) List(context.Context) ([]*karpv1.NodeClaim, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.instances), c.listErr
}

// api is a reader that knows NodeClaims only.
type api struct {
	client.Reader
	mu     sync.Mutex
	claims []karpv1.NodeClaim
	err    error
}

func (a *api) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	list.(*karpv1.NodeClaimList).Items = slices.Clone(a.claims)
	return a.err
}

func (a *api) write(nc *karpv1.NodeClaim) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.claims = append(a.claims, *nc)
}

// written lets the NodeClaims that are there carry the instance.
func (a *api) written(instance *karpv1.NodeClaim) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for i := range a.claims {
		a.claims[i].Status.ProviderID = instance.Status.ProviderID
	}
}

func instance(id, pool string, launched time.Time, labels map[string]string) *karpv1.NodeClaim {
	nc := &karpv1.NodeClaim{}
	nc.Labels = map[string]string{karpv1.NodePoolLabelKey: pool, corev1.LabelInstanceTypeStable: "g5.2xlarge", karpv1.CapacityTypeLabelKey: "spot"}
	for k, v := range labels {
		nc.Labels[k] = v
	}
	nc.CreationTimestamp = metav1.NewTime(launched)
	nc.Status.ProviderID = id
	return nc
}

func claim(pool string, requirements ...karpv1.NodeSelectorRequirementWithMinValues) *karpv1.NodeClaim {
	nc := &karpv1.NodeClaim{}
	nc.Name, nc.UID = "claim", "claim"
	nc.Labels = map[string]string{karpv1.NodePoolLabelKey: pool}
	nc.Spec.Requirements = requirements
	return nc
}

func requires(key string, values ...string) karpv1.NodeSelectorRequirementWithMinValues {
	return karpv1.NodeSelectorRequirementWithMinValues{Key: key, Operator: corev1.NodeSelectorOpIn, Values: values}
}

// decorate reads cache and API server alike.
func decorate(inner *cloud, a *api, clk *clocktesting.FakeClock, complete adoption.Complete) corecloudprovider.CloudProvider {
	return adoption.Decorate(inner, adoption.Options{Reader: a, Cache: a, Clock: clk, Complete: complete})
}

func TestCreate(t *testing.T) {
	terminating := instance("orphan", "gpu", start, nil)
	terminating.DeletionTimestamp = &metav1.Time{Time: start}
	known := claim("gpu")
	known.Status.ProviderID = "orphan"
	for name, tc := range map[string]struct {
		instances []*karpv1.NodeClaim
		known     []karpv1.NodeClaim
		wanted    *karpv1.NodeClaim
		listErr   error
		apiErr    error
		complete  adoption.Complete
		want      string
	}{
		"an instance that no NodeClaim knows is adopted": {
			instances: []*karpv1.NodeClaim{instance("orphan", "gpu", start, nil)}, wanted: claim("gpu"), want: "orphan"},
		"the oldest of several is adopted first": {
			instances: []*karpv1.NodeClaim{instance("b", "gpu", start, nil), instance("c", "gpu", start.Add(-time.Minute), nil), instance("a", "gpu", start, nil)},
			wanted:    claim("gpu"), want: "c"},
		"an instance that a NodeClaim knows is not": {
			instances: []*karpv1.NodeClaim{instance("orphan", "gpu", start, nil)}, known: []karpv1.NodeClaim{*known}, wanted: claim("gpu"), want: "new-001"},
		"an instance of another NodePool is not": {
			instances: []*karpv1.NodeClaim{instance("orphan", "other", start, nil)}, wanted: claim("gpu"), want: "new-001"},
		"a standalone NodeClaim adopts nothing": {
			instances: []*karpv1.NodeClaim{instance("orphan", "", start, nil)}, wanted: claim(""), want: "new-001"},
		"an instance type that the requirements exclude is not": {
			instances: []*karpv1.NodeClaim{instance("orphan", "gpu", start, nil)}, wanted: claim("gpu", requires(corev1.LabelInstanceTypeStable, "g5.xlarge")), want: "new-001"},
		"a zone that the requirements exclude is not": {
			instances: []*karpv1.NodeClaim{instance("orphan", "gpu", start, map[string]string{corev1.LabelTopologyZone: "a"})}, wanted: claim("gpu", requires(corev1.LabelTopologyZone, "b")), want: "new-001"},
		"requirements on labels of users do not stand in the way": {
			instances: []*karpv1.NodeClaim{instance("orphan", "gpu", start, nil)}, wanted: claim("gpu", requires("team", "a"), requires(karpv1.CapacityTypeLabelKey, "spot", "on-demand")), want: "orphan"},
		"an instance that is terminating is not": {
			instances: []*karpv1.NodeClaim{terminating}, wanted: claim("gpu"), want: "new-001"},
		"an instance of yesterday is not": {
			instances: []*karpv1.NodeClaim{instance("orphan", "gpu", start.Add(-24*time.Hour), nil)}, wanted: claim("gpu"), want: "new-001"},
		"a cloud that does not answer means a launch": {
			instances: []*karpv1.NodeClaim{instance("orphan", "gpu", start, nil)}, wanted: claim("gpu"), listErr: errors.New("throttled"), want: "new-001"},
		"an API server that does not answer means a launch": {
			instances: []*karpv1.NodeClaim{instance("orphan", "gpu", start, nil)}, wanted: claim("gpu"), apiErr: errors.New("gone"), want: "new-001"},
		"an instance that cannot be completed is left": {
			instances: []*karpv1.NodeClaim{instance("orphan", "gpu", start, nil)}, wanted: claim("gpu"), want: "new-001",
			complete: func(context.Context, *karpv1.NodeClaim, *karpv1.NodeClaim) error { return errors.New("no nodeclass") }},
	} {
		t.Run(name, func(t *testing.T) {
			inner := &cloud{instances: tc.instances, listErr: tc.listErr}
			provider := decorate(inner, &api{claims: tc.known, err: tc.apiErr}, clocktesting.NewFakeClock(start), tc.complete)
			got, err := provider.Create(context.Background(), tc.wanted)
			if err != nil {
				t.Fatal(err)
			}
			if got.Status.ProviderID != tc.want {
				t.Errorf("got instance %q, want %q", got.Status.ProviderID, tc.want)
			}
		})
	}
}

// TestCrashInABurst replays what the package is for: 40 NodeClaims, 25 of their
// instances bought and not written down, all launched again at once.
func TestCrashInABurst(t *testing.T) {
	inner, reader := &cloud{}, &api{}
	for i := range 25 {
		inner.instances = append(inner.instances, instance(fmt.Sprintf("old-%02d", i), "gpu", start, nil))
	}
	provider := decorate(inner, reader, clocktesting.NewFakeClock(start), nil)
	var wg sync.WaitGroup
	for range 40 {
		wg.Go(func() {
			got, err := provider.Create(context.Background(), claim("gpu"))
			if err != nil {
				t.Error(err)
				return
			}
			reader.write(got)
		})
	}
	wg.Wait()
	if inner.bought != 15 {
		t.Errorf("bought %d more instances, want 15", inner.bought)
	}
	ids := map[string]int{}
	for i := range reader.claims {
		ids[reader.claims[i].Status.ProviderID]++
	}
	if len(ids) != 40 {
		t.Errorf("40 NodeClaims hold %d instances, want one each", len(ids))
	}
	if got := shown(t, provider); len(got) != 40 {
		t.Errorf("List shows %d instances once all are written down, want 40", len(got))
	}
}

func TestListWithholds(t *testing.T) {
	clk := clocktesting.NewFakeClock(start)
	inner := &cloud{instances: []*karpv1.NodeClaim{instance("a", "gpu", start, nil), instance("b", "gpu", start, nil)}}
	reader := &api{claims: []karpv1.NodeClaim{*claim("gpu")}}
	provider := decorate(inner, reader, clk, nil)

	if diff := cmp.Diff([]string(nil), shown(t, provider)); diff != "" {
		t.Errorf("both wait for adoption, yet List shows (-want +got):\n%s", diff)
	}
	adopted, err := provider.Create(context.Background(), claim("gpu"))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string(nil), shown(t, provider)); diff != "" {
		t.Errorf("one is handed out and not written down, yet List shows (-want +got):\n%s", diff)
	}
	reader.written(adopted)
	if diff := cmp.Diff([]string{"a"}, shown(t, provider)); diff != "" {
		t.Errorf("one is written down (-want +got):\n%s", diff)
	}
	clk.Step(adoption.Window + time.Second)
	if diff := cmp.Diff([]string{"a", "b"}, shown(t, provider)); diff != "" {
		t.Errorf("nobody wanted the other within the window (-want +got):\n%s", diff)
	}
	if got, _ := provider.Create(context.Background(), claim("gpu")); got.Status.ProviderID == "b" {
		t.Error("an instance was adopted after the window, when garbage collection may have ended it")
	}
	inner.listErr = errors.New("throttled")
	if _, err := provider.List(context.Background()); !errors.Is(err, inner.listErr) {
		t.Errorf("List returned %v, want the inner error", err)
	}
}

// TestListWithholdsLaunches follows one launch from the purchase until the cache shows it,
// beside an instance of the same NodePool and one of another that nobody knows.
func TestListWithholdsLaunches(t *testing.T) {
	clk := clocktesting.NewFakeClock(start)
	inner := &cloud{instances: []*karpv1.NodeClaim{instance("orphan", "gpu", start.Add(-2*adoption.MaxAge), nil), instance("other", "cpu", start.Add(-2*adoption.MaxAge), nil)}, answer: make(chan struct{})}
	server, cache := &api{}, &api{claims: []karpv1.NodeClaim{*claim("gpu")}}
	provider := adoption.Decorate(inner, adoption.Options{Reader: server, Cache: cache, Clock: clk})
	want := func(when string, ids ...string) {
		t.Helper()
		if diff := cmp.Diff(ids, shown(t, provider)); diff != "" {
			t.Errorf("%s, List shows (-want +got):\n%s", when, diff)
		}
	}
	want("before the launch", "orphan", "other")
	created := make(chan *karpv1.NodeClaim)
	go func() {
		nc, _ := provider.Create(context.Background(), claim("gpu"))
		created <- nc
	}()
	for len(inner.listed()) < 3 {
		time.Sleep(time.Millisecond)
	}
	clk.Step(time.Minute)
	want("while the cloud has not answered", "orphan", "other")
	close(inner.answer)
	launched := <-created
	want("before it is written down", "orphan", "other")
	server.write(launched)
	want("before the cache has it", "orphan", "other")
	cache.written(launched)
	want("once the cache has it", "new-001", "orphan", "other")
	cache.claims = nil
	want("once its NodeClaim has gone", "new-001", "orphan", "other")
}

func TestListShowsLaunchesThatNobodyWritesDown(t *testing.T) {
	clk := clocktesting.NewFakeClock(start)
	inner, reader := &cloud{}, &api{claims: []karpv1.NodeClaim{*claim("gpu")}}
	provider := decorate(inner, reader, clk, nil)
	if _, err := provider.Create(context.Background(), claim("gpu")); err != nil {
		t.Fatal(err)
	}
	inner.createErr = errors.New("unknown outcome")
	if _, err := provider.Create(context.Background(), claim("gpu")); !errors.Is(err, inner.createErr) {
		t.Fatalf("Create returned %v, want the inner error", err)
	}
	if diff := cmp.Diff([]string{"new-002"}, shown(t, provider)); diff != "" {
		t.Errorf("a launch that failed is for the garbage collection (-want +got):\n%s", diff)
	}
	clk.Step(adoption.MaxAge + time.Second)
	if diff := cmp.Diff([]string{"new-001", "new-002"}, shown(t, provider)); diff != "" {
		t.Errorf("a launch that was not written down in time is, too (-want +got):\n%s", diff)
	}
	clk.SetTime(start)
	reader.err = errors.New("no cache")
	if _, err := provider.Create(context.Background(), claim("gpu")); !errors.Is(err, inner.createErr) {
		t.Fatalf("Create returned %v, want the inner error", err)
	}
	inner.createErr = nil
	if _, err := provider.Create(context.Background(), claim("gpu")); err != nil {
		t.Fatal(err)
	}
	if _, err := provider.List(context.Background()); !errors.Is(err, reader.err) {
		t.Errorf("List returned %v, want the error of the cache: a guess could end a launch", err)
	}
}

// TestListShowsLaunchesOfNodeClaimsThatHaveGone: nobody will ever write them down.
func TestListShowsLaunchesOfNodeClaimsThatHaveGone(t *testing.T) {
	for name, instances := range map[string][]*karpv1.NodeClaim{
		"new-001": nil,
		"adopted": {instance("adopted", "gpu", start, nil)},
	} {
		t.Run(name, func(t *testing.T) {
			inner, reader := &cloud{instances: instances}, &api{claims: []karpv1.NodeClaim{*claim("gpu")}}
			provider := decorate(inner, reader, clocktesting.NewFakeClock(start), nil)
			if _, err := provider.Create(context.Background(), claim("gpu")); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff([]string(nil), shown(t, provider)); diff != "" {
				t.Errorf("while the NodeClaim is there, List shows (-want +got):\n%s", diff)
			}
			another := claim("gpu")
			another.UID = "another of the same name"
			reader.claims = []karpv1.NodeClaim{*another}
			if diff := cmp.Diff([]string{name}, shown(t, provider)); diff != "" {
				t.Errorf("once it has gone, List shows (-want +got):\n%s", diff)
			}
		})
	}
}

// TestAPanicEndsTheLaunch: controller-runtime recovers from it, and the process lives on.
func TestAPanicEndsTheLaunch(t *testing.T) {
	inner, reader := &cloud{panics: true}, &api{claims: []karpv1.NodeClaim{*claim("gpu")}}
	provider := decorate(inner, reader, clocktesting.NewFakeClock(start), nil)
	func() {
		defer func() {
			if got := recover(); got != "nil map" {
				t.Errorf("Create panicked with %v, want what inner panicked with", got)
			}
		}()
		_, _ = provider.Create(context.Background(), claim("gpu"))
	}()
	if diff := cmp.Diff([]string{"new-001"}, shown(t, provider)); diff != "" {
		t.Errorf("no launch is under way any more, yet List shows (-want +got):\n%s", diff)
	}
}

func (c *cloud) listed() []*karpv1.NodeClaim {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.instances)
}

func shown(t *testing.T, provider corecloudprovider.CloudProvider) []string {
	t.Helper()
	listed, err := provider.List(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	var ids []string
	for _, nc := range listed {
		ids = append(ids, nc.Status.ProviderID)
	}
	slices.Sort(ids)
	return ids
}
