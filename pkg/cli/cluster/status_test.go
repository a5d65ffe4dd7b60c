package cluster_test

import (
	"encoding/json"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/apis/v1alpha1"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/cli"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/cli/manifest"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/cli/overview"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/controlplane/testenv"
)

var _ = Describe("status without GPUPool", Ordered, func() {
	BeforeAll(func(ctx SpecContext) {
		var err error
		env, err = testenv.Start(ctx, testenv.Options{Scheme: manifest.NewScheme()})
		Expect(err).ToNot(HaveOccurred())
		DeferCleanup(env.Stop)
	})

	It("should say what to install", func() {
		_, errs, code := run("status")
		Expect(errs).To(Equal("the cluster has no definition of GPUPool; install it: helm upgrade --install karpenter-crd charts/karpenter-gpu-crd --namespace karpenter"))
		Expect(code).To(Equal(cli.ExitError))
	})
})

var _ = Describe("status", Ordered, func() {
	look := func(args ...string) *overview.Overview {
		GinkgoHelper()
		out, errs, code := run(append([]string{"status", "-o", "json"}, args...)...)
		Expect(errs).To(BeEmpty())
		Expect(code).To(Equal(cli.ExitOK))
		o := &overview.Overview{}
		Expect(json.Unmarshal([]byte(out), o)).To(Succeed())
		return o
	}

	BeforeAll(func(ctx SpecContext) {
		var err error
		env, err = testenv.Start(ctx, testenv.Options{Scheme: manifest.NewScheme(), CRDs: definitions(), Manifests: [][]byte{[]byte(nodeClassCRD)}})
		Expect(err).ToNot(HaveOccurred())
		DeferCleanup(env.Stop)
	})

	It("should say that there is no pool", func() {
		out, _, code := run("status")
		Expect(out).To(Equal("There is no GPUPool. All NodePools behave as plain Karpenter.\n"))
		Expect(code).To(Equal(cli.ExitOK))
		Expect(look().GPUPools).To(BeEmpty())
	})

	It("should tell of a pool, its nodes and what pods hold of them", func(ctx SpecContext) {
		p := &v1alpha1.GPUPool{ObjectMeta: metav1.ObjectMeta{Name: "gpu"}}
		p.Status = v1alpha1.GPUPoolStatus{ObservedGeneration: 1, NodePools: 1, Nodes: 1, GPUs: v1alpha1.GPUCounts{Provisioning: 4, Total: 4}, PricePerHour: "4.60"}
		create(ctx, p)
		create(ctx, &v1alpha1.GPUPool{ObjectMeta: metav1.ObjectMeta{Name: "other"}})
		create(ctx, nodePool("gpu", true))
		launch(ctx, "node-1")
		create(ctx, pod("runs", "3", "node-1"))
		create(ctx, pod("waits", "1", ""))

		o := look("gpu")
		Expect(o.GPUPools).To(Equal([]overview.Pool{{Name: "gpu", Ready: "Unknown", NodePools: []string{"gpu"}, Partitioning: v1alpha1.PartitioningWhole, Nodes: 1, GPUs: v1alpha1.GPUCounts{Provisioning: 4, Total: 4},
			PricePerHour: "4.60", Resources: []overview.Resource{{Name: "nvidia.com/gpu", Allocatable: 4, Requested: 3}}}}))
		Expect(o.Nodes).To(HaveLen(1))
		o.Nodes[0].AgeSeconds = 0
		// It was initialized before anybody verified it: at work, and not verified.
		Expect(o.Nodes[0]).To(Equal(overview.Node{Name: "node-1", NodeClaim: "node-1", GPUPool: "gpu", NodePool: "gpu", InstanceType: "g6.12xlarge", CapacityType: "on-demand", Zone: "us-east-1a", GPUs: 4, State: "Unverified"}))
		Expect(o.Problems).To(BeEmpty())
		Expect(look().Problems).To(Equal([]overview.Problem{{Object: "GPUPool other", Reason: "NotObserved",
			Message: "no controller has looked at this pool; run kubectl gpupool doctor to see whether karpenter-gpu runs"}}))
	})

	It("should follow a node through its states", func(ctx SpecContext) {
		n := &corev1.Node{}
		Expect(env.Client.Get(ctx, client.ObjectKey{Name: "node-1"}, n)).To(Succeed())
		delete(n.Labels, karpv1.NodeInitializedLabelKey)
		Expect(env.Client.Update(ctx, n)).To(Succeed())
		Expect(look("gpu").Nodes[0].State).To(Equal("Pending"))
		Expect(look("gpu").Problems[0].Message).To(Equal("the GPU agent has not reported from this node"))

		n.Status.NodeInfo.BootID = "boot"
		n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{Type: v1alpha1.NodeConditionGPUReady, Status: corev1.ConditionFalse, Reason: "GPULost", Message: "GPU 3 is lost", LastHeartbeatTime: metav1.NewTime(at.Add(-time.Minute))})
		Expect(env.Client.Status().Update(ctx, n)).To(Succeed())
		n.Annotations = map[string]string{v1alpha1.VerifiedBootAnnotationKey: "boot"}
		n.Spec.Taints = append(n.Spec.Taints, v1alpha1.UnverifiedTaint())
		Expect(env.Client.Update(ctx, n)).To(Succeed())
		Expect(look("gpu").Nodes[0].State).To(Equal("Faulty"))
		Expect(look("gpu").Problems).To(ContainElement(overview.Problem{Object: "Node node-1", Reason: "GPULost", Message: "GPU 3 is lost"}))

		Expect(env.Client.Delete(ctx, n)).To(Succeed())
		Expect(look("gpu").Nodes[0].State).To(Equal("Launching"))
	})

	It("should name the pools that there are", func() {
		_, errs, code := run("status", "gpus")
		Expect(errs).To(Equal("GPUPool gpus: no such pool; there are gpu, other"))
		Expect(code).To(Equal(cli.ExitError))
	})

	It("should write a table that has what JSON has", func() {
		out, _, _ := run("status", "gpu")
		Expect(out).ToNot(ContainSubstring("\x1b"))
		Expect(strings.Fields(strings.Split(out, "\n")[2])).To(Equal([]string{"gpu", "Unknown", "gpu", "whole", "GPUs", "1", "0", "4", "0", "0", "4", "4.60"}))
	})
})
