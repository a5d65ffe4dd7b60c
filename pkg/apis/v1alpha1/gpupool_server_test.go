package v1alpha1_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/awslabs/operatorpkg/status"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/samber/lo"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/apis/v1alpha1"
)

var _ = Describe("The API server", func() {
	It("should fill in the defaults that the accessors give", func() {
		Expect(kube.Create(ctx, fromYAML("{apiVersion: karpenter-gpu.dev/v1alpha1, kind: GPUPool, metadata: {name: plain}}"))).To(Succeed())
		pool := &v1alpha1.GPUPool{}
		Expect(kube.Get(ctx, client.ObjectKey{Name: "plain"}, pool)).To(Succeed())
		Expect(pool.Spec).To(Equal(v1alpha1.GPUPoolSpec{
			Selection: v1alpha1.Selection{Objective: v1alpha1.ObjectiveCost, PriceTolerancePercent: lo.ToPtr[int32](10)},
			Readiness: v1alpha1.Readiness{
				Gate:                v1alpha1.GateStartupTaint,
				Enforce:             v1alpha1.EnforceWhenSafe,
				Deadline:            &metav1.Duration{Duration: 10 * time.Minute},
				MaxConcurrentTrials: lo.ToPtr[int32](3),
			},
			Health: v1alpha1.Health{MaxFencedPartitions: lo.ToPtr[int32](1)},
		}))
		Expect(accessors(&pool.Spec)).To(Equal(accessors(&v1alpha1.GPUPoolSpec{})))
	})

	It("should fill in the defaults of what is set", func() {
		pool := fromYAML(full)
		set(pool, `{mig: {profiles: [1g.10gb]}}`, "spec", "partitioning")
		set(pool, `[{name: a, scalableRef: {kind: Deployment, namespace: b, name: c}, replicas: 1, schedule: {windows: [{start: "@daily", duration: 1h}]}}]`, "spec", "warm")
		Expect(kube.Create(ctx, pool)).To(Succeed())
		got := &v1alpha1.GPUPool{}
		Expect(kube.Get(ctx, client.ObjectKeyFromObject(pool), got)).To(Succeed())
		Expect(got.Spec.Partitioning.MIG.Strategy).To(Equal(v1alpha1.MIGStrategyMixed))
		Expect(got.Spec.Warm[0].ScalableRef.APIGroup).To(Equal("apps"))
		Expect(got.Spec.Warm[0].Schedule.Windows[0]).To(Equal(v1alpha1.WarmWindow{
			Start: "@daily", Duration: metav1.Duration{Duration: time.Hour}, TimeZone: "UTC", SharePercent: lo.ToPtr[int32](100),
		}))
	})

	It("should give back what the Go types wrote", func() {
		pool := &v1alpha1.GPUPool{}
		Expect(yaml.UnmarshalStrict([]byte(full), pool)).To(Succeed())
		want := pool.DeepCopy()
		Expect(kube.Create(ctx, pool)).To(Succeed())
		got := &v1alpha1.GPUPool{}
		Expect(kube.Get(ctx, client.ObjectKeyFromObject(pool), got)).To(Succeed())
		want.Spec.Warm[2].ScalableRef.APIGroup = "apps"
		Expect(got.Spec).To(Equal(want.Spec))
		Expect(got.RuntimeValidate(nil)).To(Succeed())
	})

	It("should refuse a field that it does not know", func() {
		pool := fromYAML(full)
		set(pool, "1", "spec", "maxGPUs")
		Expect(kube.Create(ctx, pool)).To(MatchError(ContainSubstring(`unknown field "spec.maxGPUs"`)))
	})

	It("should print the state of the GPUs at a glance", func() {
		pool := &v1alpha1.GPUPool{}
		Expect(yaml.UnmarshalStrict([]byte(full), pool)).To(Succeed())
		Expect(kube.Create(ctx, pool)).To(Succeed())
		pool.Status.GPUs = v1alpha1.GPUCounts{Ready: 24, Provisioning: 8, Warm: 4, Unhealthy: 0, Total: 32}
		pool.Status.Nodes, pool.Status.PricePerHour = 5, "38.49"
		conditions := pool.StatusConditions(status.WithClock(clocktesting.NewFakeClock(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))))
		Expect(conditions.IsTrue(status.ConditionReady)).To(BeFalse())
		for _, condition := range []string{
			v1alpha1.ConditionTypeValidationSucceeded, v1alpha1.ConditionTypeNodePoolsResolved,
			v1alpha1.ConditionTypePartitioningSupported, v1alpha1.ConditionTypeGateSafe,
		} {
			conditions.SetTrue(condition)
		}
		conditions.SetFalse(v1alpha1.ConditionTypeWithinLimits, v1alpha1.ReasonGPULimitReached, "limits.gpus holds back a launch")
		Expect(kube.Status().Update(ctx, pool)).To(Succeed())

		table := tableOf("gpupools")
		Expect(columns(table, 0)).To(Equal([]string{"Name", "GPUs-Ready", "Provisioning", "Warm", "Unhealthy", "Price/h", "Ready", "Age"}))
		Expect(columns(table, 1)).To(Equal([]string{"Total", "Nodes", "Gate"}))
		cells := table.Rows[0].Cells
		Expect(cells[:7]).To(Equal([]any{"inference", 24.0, 8.0, 4.0, 0.0, "38.49", "True"}))
		Expect(cells[8:]).To(Equal([]any{32.0, 5.0, "StartupTaint"}))
	})
})

var _ = Describe("Examples", func() {
	files, err := filepath.Glob(filepath.Join(root, "examples", "gpupools", "*.yaml"))
	It("should be there", func() {
		Expect(err).NotTo(HaveOccurred())
		Expect(len(files)).To(BeNumerically(">=", 5))
	})
	for _, file := range files {
		It("should be accepted: "+filepath.Base(file), func() {
			content, err := os.ReadFile(file)
			Expect(err).NotTo(HaveOccurred())
			Expect(kube.Create(ctx, fromYAML(string(content)))).To(Succeed())
			pool := &v1alpha1.GPUPool{}
			Expect(yaml.UnmarshalStrict(content, pool)).To(Succeed())
			Expect(pool.RuntimeValidate(nil)).To(Succeed())
			Expect(pool.Name).To(Equal(strings.TrimSuffix(filepath.Base(file), ".yaml")))
		})
	}
})

// tableOf is what kubectl get asks for.
func tableOf(resource string) *metav1.Table {
	GinkgoHelper()
	unversioned := rest.CopyConfig(config)
	unversioned.NegotiatedSerializer = scheme.Codecs.WithoutConversion()
	api, err := rest.UnversionedRESTClientFor(unversioned)
	Expect(err).NotTo(HaveOccurred())
	answer, err := api.Get().AbsPath("apis", v1alpha1.Group, "v1alpha1", resource).
		SetHeader("Accept", "application/json;as=Table;g=meta.k8s.io;v=v1").Do(ctx).Raw()
	Expect(err).NotTo(HaveOccurred())
	table := &metav1.Table{}
	Expect(json.Unmarshal(answer, table)).To(Succeed())
	Expect(table.Rows).To(HaveLen(1))
	return table
}

func columns(table *metav1.Table, priority int32) []string {
	return lo.FilterMap(table.ColumnDefinitions, func(c metav1.TableColumnDefinition, _ int) (string, bool) {
		return c.Name, c.Priority == priority
	})
}
