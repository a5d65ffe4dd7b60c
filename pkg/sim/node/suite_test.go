package node_test

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/controlplane"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/controlplane/testenv"
)

// requireAssets, when set, makes missing binaries of the control plane a failure.
const requireAssets = "KPGPU_REQUIRE_ASSETS"

var env *testenv.Environment

func TestStack(t *testing.T) {
	RegisterFailHandler(Fail)
	SetDefaultEventuallyTimeout(20 * time.Second)
	SetDefaultEventuallyPollingInterval(20 * time.Millisecond)
	RunSpecs(t, "Simulated node software")
}

var _ = BeforeSuite(func(ctx SpecContext) {
	var err error
	env, err = testenv.Start(ctx, testenv.Options{})
	var missing *controlplane.MissingBinaryError
	if errors.As(err, &missing) && os.Getenv(requireAssets) == "" {
		Skip(err.Error())
	}
	Expect(err).NotTo(HaveOccurred())
}, NodeTimeout(2*time.Minute))

var _ = AfterSuite(func() {
	Expect(env.Stop(context.Background())).To(Succeed())
})
