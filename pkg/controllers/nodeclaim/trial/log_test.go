package trial_test

import (
	"fmt"
	"strings"

	"github.com/go-logr/logr/funcr"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/log"
	. "sigs.k8s.io/karpenter/pkg/test/expectations"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/apis/v1alpha1"
)

var _ = Describe("The log", func() {
	var lines []string
	BeforeEach(func() {
		lines = nil
		quiet := ctx
		ctx = log.IntoContext(ctx, funcr.NewJSON(func(line string) { lines = append(lines, line) }, funcr.Options{}).
			WithValues("NodeClaim", klog.KObj(nodeClaim)))
		DeferCleanup(func() { ctx = quiet })
	})

	once := WithTransform(func(line string) int {
		return strings.Count(line, fmt.Sprintf(`"NodeClaim":{"name":"%s"}`, nodeClaim.Name))
	}, Equal(1))

	It("should name the node that is replaced by all its names", func() {
		ExpectApplied(ctx, env.Client, nodeClaim, node)
		env.Clock.Step(v1alpha1.DefaultDeadline)
		reconciled()
		Expect(lines).To(ConsistOf(And(
			ContainSubstring(`"msg":"replacing node, not verified by its deadline"`), ContainSubstring(`"reason":"NoReport"`),
			ContainSubstring(`"Node":{"name":"%s"}`, node.Name), once,
		)))
	})

	It("should name the claim alone where no node has joined", func() {
		ExpectApplied(ctx, env.Client, nodeClaim)
		env.Clock.Step(v1alpha1.DefaultDeadline)
		reconciled()
		Expect(lines).To(ConsistOf(And(
			ContainSubstring(`"reason":"NotRegistered"`), once, Not(ContainSubstring(`"Node":`)),
		)))
	})
})
