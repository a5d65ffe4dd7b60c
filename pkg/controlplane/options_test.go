package controlplane_test

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/karpenter-gpu/karpenter-gpu/pkg/controlplane"
)

var _ = Describe("Options", func() {
	DescribeTable("should reject what cannot work, with the way out",
		func(ctx SpecContext, opts controlplane.Options, message string) {
			opts.Dir = filepath.Join(GinkgoT().TempDir(), "plane")
			_, err := controlplane.Start(ctx, opts)
			Expect(err).To(MatchError("checking the control plane's options, " + message))
			Expect(opts.Dir).ToNot(BeADirectory())
		},
		Entry("an unknown component", controlplane.Options{Components: []controlplane.Component{"etcd", "kube-apiserver", "kubelet"}},
			`Components: unknown component "kubelet", use etcd, kube-apiserver, kube-controller-manager, kube-scheduler, kwok`),
		Entry("components without etcd", controlplane.Options{Components: []controlplane.Component{controlplane.APIServer}},
			"Components: kube-apiserver lacks etcd, which every other component needs"),
		Entry("components without kube-apiserver", controlplane.Options{Components: []controlplane.Component{controlplane.Etcd, controlplane.KWOK}},
			"Components: etcd, kwok lacks kube-apiserver, which every other component needs"),
		Entry("arguments of a component that is not started", controlplane.Options{
			Components: controlplane.APIOnly(), ExtraArgs: map[controlplane.Component][]string{controlplane.KWOK: {"--v=1"}}},
			`ExtraArgs: component "kwok" is not started, add it to Components or drop its arguments`),
		Entry("a port out of range", controlplane.Options{APIServerPort: 65536},
			"APIServerPort: 65536 is not a port, use 1 to 65535, or 0 for a free one"),
		Entry("a grace period too short for leases", controlplane.Options{NodeMonitorGracePeriod: time.Second},
			"NodeMonitorGracePeriod: 1s is below 5s, under which nodes would flap"),
	)
	It("should name a port that is taken and the way out, and leave nothing", func(ctx SpecContext) {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		Expect(err).ToNot(HaveOccurred())
		defer listener.Close()
		port := listener.Addr().(*net.TCPAddr).Port
		temp := GinkgoT().TempDir()
		GinkgoT().Setenv("TMPDIR", temp)
		_, err = controlplane.Start(ctx, controlplane.Options{Components: controlplane.APIOnly(), APIServerPort: port})
		Expect(err).To(MatchError(And(
			ContainSubstring("APIServerPort: port %d on 127.0.0.1 is not free", port),
			ContainSubstring("end what listens there (`lsof -i :%d` names it), choose another port, or use 0 for a free one", port),
		)))
		Expect(files(temp)).To(BeEmpty())
	})
	It("should name every missing binary and the way out, before it writes anything", func(ctx SpecContext) {
		assets, temp := GinkgoT().TempDir(), GinkgoT().TempDir()
		GinkgoT().Setenv("TMPDIR", temp)
		Expect(os.WriteFile(filepath.Join(assets, "etcd"), []byte("#!/bin/sh\n"), 0o755)).To(Succeed())
		Expect(os.WriteFile(filepath.Join(assets, "kwok"), []byte("not executable"), 0o644)).To(Succeed())
		_, err := controlplane.Start(ctx, controlplane.Options{Assets: assets})
		for _, c := range []string{"kube-apiserver", "kube-controller-manager", "kube-scheduler", "kwok"} {
			Expect(err).To(MatchError(ContainSubstring(fmt.Sprintf(
				"finding %s, no executable of that name (searched: %s): run `make controlplane`, or set KUBEBUILDER_ASSETS to a directory that has it", c, assets))))
		}
		Expect(err).ToNot(MatchError(ContainSubstring("finding etcd")))
		var missing *controlplane.MissingBinaryError
		Expect(errors.As(err, &missing)).To(BeTrue())
		Expect(missing.Component).To(Equal(controlplane.APIServer))
		Expect(files(temp)).To(BeEmpty())
	})
	It("should prefer the option to KUBEBUILDER_ASSETS, and that to the repository", func() {
		option, env := GinkgoT().TempDir(), GinkgoT().TempDir()
		for _, dir := range []string{option, env} {
			Expect(os.WriteFile(filepath.Join(dir, "etcd"), []byte("#!/bin/sh\n"), 0o755)).To(Succeed())
		}
		GinkgoT().Setenv(controlplane.AssetsEnv, env)
		Expect(controlplane.FindBinary(option, controlplane.Etcd)).To(Equal(filepath.Join(option, "etcd")))
		Expect(controlplane.FindBinary("", controlplane.Etcd)).To(Equal(filepath.Join(env, "etcd")))
		By("falling back for a binary that the user's directory lacks")
		Expect(controlplane.FindBinary("", controlplane.KWOK)).To(HaveSuffix("/bin/controlplane/kwok"))
	})
	It("should draw different free ports", func() {
		ports, err := controlplane.FreePorts(50)
		Expect(err).ToNot(HaveOccurred())
		seen := map[int]bool{}
		for _, port := range ports {
			Expect(seen[port]).To(BeFalse(), "port %d came twice", port)
			seen[port] = true
			Expect(refused(fmt.Sprintf("127.0.0.1:%d", port))).To(BeTrue())
		}
		Expect(seen).To(HaveLen(50))
	})
})
