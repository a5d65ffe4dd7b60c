package reclaim_test

import (
	"time"

	opcontroller "github.com/awslabs/operatorpkg/controller"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/controllers/nodeclaim/disruption"
	. "sigs.k8s.io/karpenter/pkg/test/expectations"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/controllers/gpupool/reclaim"
)

var _ = Describe("Karpenter's own consolidation", func() {
	var holder *reclaim.Holder
	var claim *karpv1.NodeClaim

	consolidatable := func() bool {
		GinkgoHelper()
		ExpectObjectReconciled(ctx, env.Client, holder, claim)
		claim = ExpectExists(ctx, env.Client, claim)
		return claim.StatusConditions().IsTrue(karpv1.ConditionTypeConsolidatable)
	}
	standing1 := func() {
		GinkgoHelper()
		claims, nodes := standing(1)
		claim = claims[0]
		claim.Status.NodeName = nodes[0].Name
		ExpectApplied(ctx, env.Client, claim)
	}

	BeforeEach(func() {
		nodePool.Spec.Disruption.ConsolidateAfter = karpv1.MustParseNillableDuration("0s")
		ExpectApplied(ctx, env.Client, nodePool)
		holder = reclaim.NewHolder(env.Clock, env.Client, cloud, store)
	})

	It("should leave empty nodes to the pool, and only those", func() {
		standing1()
		Expect(consolidatable()).To(BeFalse())
		node := ExpectNodeExists(ctx, env.Client, claim.Status.NodeName)
		pod := bound(node)
		Expect(consolidatable()).To(BeTrue())
		ended(pod)
		Expect(consolidatable()).To(BeFalse())
	})

	It("should take them back when the pool reclaims no more, within a minute", func() {
		standing1()
		Expect(ExpectObjectReconciled(ctx, env.Client, holder, claim).RequeueAfter).To(Equal(time.Minute))
		gpuPool.Spec.Reclaim.EmptyAfter = nil
		resolve()
		Expect(consolidatable()).To(BeTrue())
	})

	It("should be stock outside of pools", func() {
		store.Swap(nil, map[string]string{nodePool.Name: ""})
		standing1()
		Expect(consolidatable()).To(BeTrue())
		Expect(ExpectObjectReconciled(ctx, env.Client, holder, claim).RequeueAfter).To(Equal(5*time.Minute), "that of drift")
	})

	It("should not be shown another NodePool than there is in what it writes", func() {
		standing1()
		Expect(consolidatable()).To(BeFalse())
		found := ExpectExists(ctx, env.Client, nodePool)
		Expect(found.Spec.Disruption.ConsolidateAfter.Duration).To(HaveValue(BeZero()))
	})

	It("should be replaced once", func() {
		stock := disruption.NewController(env.Clock, env.Client, cloud)
		out, err := reclaim.Hold([]opcontroller.Controller{queue, stock}, env.Clock, env.Client, cloud, store)
		Expect(err).NotTo(HaveOccurred())
		Expect(out[0]).To(BeIdenticalTo(queue))
		Expect(out[1]).To(BeAssignableToTypeOf(holder))
		Expect(out[1].(*reclaim.Holder).Name()).To(Equal(stock.Name()))
		_, err = reclaim.Hold([]opcontroller.Controller{queue}, env.Clock, env.Client, cloud, store)
		Expect(err).To(MatchError("replacing the controller of the condition Consolidatable, found 0, want 1"))
	})

	It("should be found by its queue", func() {
		found, err := reclaim.Queue([]opcontroller.Controller{holder, queue})
		Expect(err).NotTo(HaveOccurred())
		Expect(found).To(BeIdenticalTo(queue))
		_, err = reclaim.Queue([]opcontroller.Controller{holder})
		Expect(err).To(MatchError("finding the queue of disruption, 0 of 1 controllers are one, want 1"))
	})
})
