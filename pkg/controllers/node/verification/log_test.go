package verification_test

import (
	"strings"

	"github.com/go-logr/logr/funcr"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/log"
	. "sigs.k8s.io/karpenter/pkg/test/expectations"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/gpu/health"
)

var _ = Describe("The log", func() {
	It("should tell the story of a node by any of its names", func() {
		var lines []string
		quiet := ctx
		ctx = log.IntoContext(ctx, funcr.NewJSON(func(line string) { lines = append(lines, line) }, funcr.Options{}).
			WithValues("Node", klog.KRef("", node.Name)))
		DeferCleanup(func() { ctx = quiet })

		reconciled()
		Expect(lines).To(BeEmpty(), "waiting is no news")
		verified()
		reported(faulty(a10gs(boot), health.ReportFinding{Check: health.CheckGPULost, Reason: health.GPULost, GPU: new(int), Message: "GPU 0 is gone"}))
		reconciled()
		ExpectObjectReconciled(ctx, env.Client, controller, node)
		Expect(lines).To(HaveExactElements(
			ContainSubstring(`"msg":"verified node"`),
			And(ContainSubstring(`"msg":"fenced node"`), ContainSubstring(`"reason":"GPULost"`), ContainSubstring(`"detail":"GPU 0 is gone"`)),
		))
		Expect(lines).To(HaveEach(And(
			ContainSubstring(`"Node":{"name":"%s"}`, node.Name),
			ContainSubstring(`"NodeClaim":{"name":"%s"}`, nodeClaim.Name),
			ContainSubstring(`"GPUPool":{"name":"inference"}`),
			WithTransform(func(line string) int { return strings.Count(line, `"Node":`) }, Equal(1)),
		)))
	})
})
