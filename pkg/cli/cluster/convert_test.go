package cluster_test

import (
	"bytes"
	"context"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/cli"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/cli/manifest"
	"github.com/karpenter-gpu/karpenter-gpu/pkg/controlplane/testenv"
)

var _ = Describe("convert", Ordered, func() {
	BeforeAll(func(ctx SpecContext) {
		var err error
		env, err = testenv.Start(ctx, testenv.Options{Scheme: manifest.NewScheme(), CRDs: definitions(), Manifests: [][]byte{[]byte(nodeClassCRD)}})
		Expect(err).ToNot(HaveOccurred())
		DeferCleanup(env.Stop)
	})

	DescribeTable("should write what an API server takes", func(ctx SpecContext, file, format string, objects int) {
		var out, errs bytes.Buffer
		cmd := cli.New(cli.Streams{In: strings.NewReader(""), Out: &out, Err: &errs}, nil)
		cmd.SetArgs([]string{"convert", "-f", "../../../examples/convert/" + file, "-o", format})
		Expect(cli.ExitCode(cmd.ExecuteContext(context.Background()))).To(Equal(cli.ExitUnmet))
		Expect(errs.String()).ToNot(BeEmpty())
		documents, err := manifest.Documents([]string{"-"}, &out)
		Expect(err).ToNot(HaveOccurred())
		Expect(documents).To(HaveLen(objects))
		for _, d := range documents {
			Expect(env.Client.Create(ctx, d.Object, client.DryRunAll)).To(Succeed(), d.Object.GetName())
		}
	},
		Entry("of v1beta1", "v1beta1.yaml", "yaml", 2),
		Entry("of TensorFusion", "tensor-fusion.yaml", "yaml", 2),
		Entry("as JSON", "tensor-fusion.yaml", "json", 2),
	)
})
